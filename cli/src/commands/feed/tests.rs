//! Lines that commands make, and what is refused before anybody is asked.

use super::*;

#[test]
fn commands_make_the_lines_of_the_contract() {
    let document = object(r#"{"title":"T"}"#).unwrap();
    let line = operation("put", Some("https://a.example/"), Some(document), Some(u64::MAX));
    let read: Value = serde_json::from_str(&line.text).unwrap();
    let expected = json!({ "op": "put", "key": "https://a.example/", "document": { "title": "T" },
                           "order": "18446744073709551615" });
    assert_eq!((read, line.key.as_str()), (expected, "https://a.example/"));
    let delete = operation("delete", Some("k"), None, None);
    assert_eq!(serde_json::from_str::<Value>(&delete.text).unwrap(), json!({ "op": "delete", "key": "k" }));
    for bad in ["[1]", "{", ""] {
        let error = object(bad).unwrap_err().to_string();
        assert!(error.contains("no JSON object") && error.contains("hint: "), "{error}");
    }
}

#[test]
fn an_ingest_is_found_in_the_file_and_a_key_is_one_word() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let at = |config: PathBuf, key_file: Option<PathBuf>| At {
        corpus: "web".to_owned(),
        ingest: None,
        config: Some(config),
        key_file,
        patience: Time::ms(1),
        json: false,
    };
    let node = "[[topology.nodes]]\nid = 'i'\nrole = 'ingest'\naddress = 'h:1'\n";
    let good = file("good.toml", &format!("{node}admin = 'h:2'\n"));
    assert_eq!(at(good.clone(), None).client().unwrap().address(), "h:2");
    let mute = at(file("mute.toml", node), None).client().err().unwrap().to_string();
    assert!(mute.contains("names no ingest") && mute.contains("--ingest"), "{mute}");
    assert!(at(good.clone(), Some(file("key", "abc\n"))).client().is_ok());
    let two = at(good, Some(file("two", "ann abc\n"))).client().err().unwrap().to_string();
    assert!(two.contains("holds no key"), "{two}");
}

#[test]
fn what_an_ingest_says_is_shown_without_control_characters() {
    let letters = json!({ "letters": [{ "at_us": 1_700_000_000_000_000_i64, "op": "patch", "key": "k\u{1b}[2J", "by": "leaf-1",
                                        "reason": "no document" }], "dropped": 3 });
    let lines = show::dead_letters(&letters);
    assert!(lines[0].starts_with("2023-11-14T22:13:20Z patch k"), "{lines:?}");
    assert!(lines[0].ends_with("(by leaf-1): no document") && !lines[0].contains('\u{1b}'), "{lines:?}");
    assert_eq!(lines[1], "3 older ones are not kept any more");
    assert_eq!(show::dead_letters(&json!({ "letters": [] })), ["no dead letter"]);
    let erased = json!({ "token": "e:0.1", "steps": [{ "what": "log", "done": true, "detail": "" },
                         { "what": "versions", "done": false, "detail": "canopy index absorb" }] });
    assert_eq!(
        show::erased(&erased),
        ["token e:0.1", "done   log", "to do  versions       canopy index absorb"]
    );
}
