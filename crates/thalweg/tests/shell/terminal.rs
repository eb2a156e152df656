//! Output for a person at a terminal only: results, prompts, progress.

use crate::rig::Rig;

#[test]
fn what_was_done_is_said_at_a_terminal_and_nowhere_else() {
    let rig = Rig::start(&[]);
    let seen = rig.at_terminal(
        "echo words | thalweg stream append notes --create --content-type text/plain; thalweg stream close notes; \
         thalweg stream delete notes; thalweg stream delete notes --if-exists",
    );
    for part in ["notes: 6 B appended; it ends at ", "notes: closed", "notes: deleted", "notes: not there"] {
        assert!(seen.contains(part), "{part} is missing in {seen}");
    }
    rig.append("quiet", "words");
    let output = rig.run("stream close quiet");
    assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty());
}

#[test]
fn a_person_who_is_to_type_is_told_so() {
    let rig = Rig::start(&[]);
    rig.ok("stream create notes --content-type text/plain");
    // The terminal of `script` ends at once, as with Ctrl-D.
    let seen = rig.at_terminal("thalweg stream append notes");
    assert!(seen.contains("Standard input is appended as one message; Ctrl-D ends it."), "{seen}");
    let seen = rig.at_terminal("thalweg stream append notes --lines");
    assert!(seen.contains("Standard input is appended line by line"), "{seen}");
    let seen = rig.at_terminal("thalweg context add a --server http://h --token -");
    assert!(seen.contains("The token: "), "{seen}");
}

#[test]
fn a_long_append_of_a_file_shows_how_much_is_left() {
    let rig = Rig::start(&[]);
    rig.ok("stream create big --content-type text/plain");
    std::fs::write(rig.path("big"), "0123456789abcdef\n".repeat(200_000)).unwrap();
    // A slow reader of a file: one line an append, so that it lasts.
    let seen = rig.at_terminal("timeout 4 thalweg stream append big --lines --batch 1 --input big");
    assert!(seen.contains(" of 3.24 MiB") && seen.contains(" left"), "{seen}");
}
