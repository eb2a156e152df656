//! Warnings of settings and files that are allowed and unsafe, given once, at the start.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use thalweg_host::config::{AuthMode, Config, Switch};

/// Permissions of other users on a file, as bits of its mode. A group may be trusted with reading.
const OTHERS_WRITE: u32 = 0o022;
const OTHERS_READ: u32 = 0o004;

/// All warnings. `superuser`: the process may do everything on its machine.
pub(crate) fn all(config: &Config, superuser: bool) -> Vec<String> {
    let mut said = Vec::new();
    let open = config.auth == AuthMode::Off;
    if open && !config.is_local() {
        said.push(format!(
            "--auth off: all clients that reach {} may read, write and delete every stream, and take backups",
            config.listen
        ));
    }
    if config.serves_shapes() && config.shape_insecure == Switch::On && !config.is_local() {
        said.push(format!(
            "--shape-insecure on (ELECTRIC_INSECURE): all clients that reach {} may read the database",
            config.listen
        ));
    }
    if superuser && !config.dev {
        said.push("the server runs as root, which it needs for nothing: give it a user of its own".to_owned());
    }
    let files = [
        ("the file of tokens", config.tokens.clone(), OTHERS_WRITE, "write"),
        ("the private key of the certificate", config.tls_key.clone(), OTHERS_READ | OTHERS_WRITE, "read"),
        (
            "the key that signs tokens",
            config.data.join(thalweg_host::auth::KEY_FILE),
            OTHERS_READ | OTHERS_WRITE,
            "read",
        ),
    ];
    for (what, path, others, verb) in files {
        said.extend(mode_of(&path).filter(|mode| mode & others != 0).map(|mode| {
            let path = path.display();
            format!(
                "other users may {verb} {what}, {path}, of mode {mode:o}: chmod 600, or 640 with a group that you trust"
            )
        }));
    }
    said
}

/// The permissions of a file; `None` if it does not exist.
fn mode_of(path: &Path) -> Option<u32> {
    let set = !path.as_os_str().is_empty();
    std::fs::metadata(path).ok().filter(|_| set).map(|found| found.permissions().mode() & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_host::config::{Settings, load};

    fn said(settings: Settings, superuser: bool) -> String {
        all(&load(settings, None).unwrap(), superuser).join("\n")
    }

    #[test]
    fn nothing_is_said_of_what_is_as_it_should_be() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens.toml");
        std::fs::write(&tokens, "").unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(said(Settings { tokens: Some(tokens), ..Settings::default() }, false), "");
        assert_eq!(said(Settings { auth: Some(AuthMode::Off), ..Settings::default() }, false), "");
    }

    #[test]
    fn an_open_server_a_superuser_and_files_of_everybody_are_told() {
        let everywhere = || Some("0.0.0.0:0".parse().unwrap());
        let open = Settings { auth: Some(AuthMode::Off), listen: everywhere(), ..Settings::default() };
        assert!(said(open, false).contains("--auth off: all clients that reach 0.0.0.0:0"));
        let shapes = Settings {
            listen: everywhere(),
            database_url: Some("postgres://h/d".to_owned()),
            shape_insecure: Some(Switch::On),
            ..Settings::default()
        };
        assert!(said(shapes, false).contains("may read the database"));
        assert!(said(Settings::default(), true).contains("runs as root"));
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Some(path)
        };
        let (tokens, key) = (file("tokens.toml", 0o666), file("key.pem", 0o644));
        file("signing.key", 0o604);
        let of_group =
            Settings { tls_key: file("group.pem", 0o640), tls_cert: file("cert.pem", 0o644), ..Settings::default() };
        assert_eq!(said(of_group, false), "");
        let cert = file("cert.pem", 0o644);
        let data = Some(folder.path().to_owned());
        let loose = said(Settings { tokens, tls_key: key, tls_cert: cert, data, ..Settings::default() }, false);
        for part in [
            "write the file of tokens",
            "of mode 666",
            "read the private key",
            "of mode 644",
            "signing.key, of mode 604",
        ] {
            assert!(loose.contains(part), "{part}: {loose}");
        }
    }
}
