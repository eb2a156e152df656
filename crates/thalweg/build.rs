//! Passes the commit to the program, for `thalweg --version`: the variable `THALWEG_COMMIT` if it is set, otherwise
//! git's answer. Sources without git, such as an unpacked archive, have no commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=THALWEG_COMMIT");
    let given = std::env::var("THALWEG_COMMIT").ok().filter(|commit| !commit.is_empty());
    // A checkout of something else may lie around these sources: it does not track this file.
    let ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    if ours {
        // The log of HEAD has a new line after every commit and checkout.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", file]) {
                println!("cargo:rerun-if-changed={path}");
            }
        }
    }
    if let Some(commit) = given.or_else(|| ours.then(|| git(&["rev-parse", "--short=10", "HEAD"])).flatten()) {
        println!("cargo:rustc-env=THALWEG_COMMIT={commit}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
