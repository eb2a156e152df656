//! The channel binding of SCRAM: the hash of the server's certificate, by the hash function of its own signature (RFC
//! 5929, section 4.1).

use ring::digest::{self, Algorithm, SHA256, SHA384, SHA512};

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;

/// `None` if the signature has no hash function, as with Ed25519, or names it in its parameters, as with RSA-PSS.
pub(super) fn end_point(der: &[u8]) -> Option<Vec<u8>> {
    Some(digest::digest(hash_of(der)?, der).as_ref().to_vec())
}

fn hash_of(der: &[u8]) -> Option<&'static Algorithm> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (_, after) = element(certificate, SEQUENCE)?;
    let (algorithm, _) = element(after, SEQUENCE)?;
    match element(algorithm, OID)?.0 {
        // sha1WithRSAEncryption, md5WithRSAEncryption, ecdsa-with-SHA1: too weak, so that SHA-256 replaces them.
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04"
        | b"\x2a\x86\x48\xce\x3d\x04\x01"
        // sha256WithRSAEncryption, ecdsa-with-SHA256.
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
        | b"\x2a\x86\x48\xce\x3d\x04\x03\x02" => Some(&SHA256),
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c" | b"\x2a\x86\x48\xce\x3d\x04\x03\x03" => Some(&SHA384),
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d" | b"\x2a\x86\x48\xce\x3d\x04\x03\x04" => Some(&SHA512),
        _ => None,
    }
}

/// The content of the DER element of this tag at the beginning of `bytes`, and the rest.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    if first != tag {
        return None;
    }
    let (len, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x84 => {
            let (long, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (long.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, hash) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(&SHA256)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(&SHA384)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
            let expected = hash.map(|hash| digest::digest(hash, certificate.der()).as_ref().to_vec());
            assert_eq!(end_point(certificate.der()), expected);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_certificate(bytes: Vec<u8>) {
            let _ = end_point(&bytes);
        }
    }
}
