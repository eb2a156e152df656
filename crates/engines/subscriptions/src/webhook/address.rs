//! Public addresses: the complement of the IANA registries of special-purpose addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_public_v4(v4),
            None => is_public_v6(v6),
        },
    }
}

pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)            // this network, private, loopback, multicast and reserved
            | (100, 64..=127, _)                // carrier-grade NAT
            | (169, 254, _)                     // link-local, cloud metadata
            | (172, 16..=31, _) | (192, 168, _) // private
            | (192, 0, 0 | 2) | (192, 88, 99)   // protocol assignments, documentation, 6to4 relays
            | (198, 18 | 19, _)                 // benchmarks
            | (198, 51, 100) | (203, 0, 113) // documentation
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is 2000::/3. An address that embeds an IPv4 address (6to4, Teredo; NAT64 is outside) could lead
    // anywhere.
    let [a, b, ..] = address.segments();
    let unicast = a & 0xe000 == 0x2000;
    let special = (a == 0x2001 && (b < 0x200 || b == 0xdb8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    unicast && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_pass() {
        for text in
            ["1.1.1.1", "8.8.8.8", "100.63.0.1", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1"]
        {
            assert!(public(text), "{text}");
        }
    }

    #[test]
    fn special_addresses_do_not() {
        for text in [
            "0.0.0.0",
            "10.0.0.1",
            "127.0.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "100::1",
            "3fff::1",
        ] {
            assert!(!public(text), "{text}");
        }
    }
}
