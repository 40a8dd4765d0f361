use super::*;
use crate::json::SyntaxKind;

fn edited(json: &str, edit: impl FnOnce(&mut Edits<'_>)) -> String {
    let mut edits = Edits::new(json);
    edit(&mut edits);
    edits.apply().unwrap().into_owned()
}

fn refused(json: &str, edit: impl FnOnce(&mut Edits<'_>)) -> EditError {
    let mut edits = Edits::new(json);
    edit(&mut edits);
    edits.apply().unwrap_err()
}

/// §5 "Ids": every id is replaced on the way upstream.
#[test]
fn id_is_replaced() {
    for id in ["1", "\"a\\u0062\"", "123456789012345678901234567890"] {
        let json = format!(r#"{{"method":"a", "id" : {id} ,"x":[1e400]}}"#);
        let new = edited(&json, |edits| {
            edits.set(&["id"], "7");
        });
        assert_eq!(new, r#"{"method":"a", "id" : 7 ,"x":[1e400]}"#);
    }
}

#[test]
fn progress_token_is_set_or_replaced() {
    let path = ["params", "_meta", "progressToken"];
    for (json, new) in [
        (
            r#"{"params":{"_meta":{"progressToken":"t"}}}"#,
            r#"{"params":{"_meta":{"progressToken":9}}}"#,
        ),
        (r#"{"params":{"_meta":{"x":1}}}"#, r#"{"params":{"_meta":{"x":1,"progressToken":9}}}"#),
        (r#"{"params":{"_meta":{ }}}"#, r#"{"params":{"_meta":{"progressToken":9 }}}"#),
        (r#"{"params":{"_meta":null}}"#, r#"{"params":{"_meta":{"progressToken":9}}}"#),
        (r#"{"params":{"a":1.10 }}"#, r#"{"params":{"a":1.10,"_meta":{"progressToken":9} }}"#),
        (r#"{"a":1}"#, r#"{"a":1,"params":{"_meta":{"progressToken":9}}}"#),
        (r#"{}"#, r#"{"params":{"_meta":{"progressToken":9}}}"#),
        (r#"{"params":{"_m\u0065ta":{}}}"#, r#"{"params":{"_m\u0065ta":{"progressToken":9}}}"#),
    ] {
        let set = edited(json, |edits| {
            edits.set(&path, "9");
        });
        assert_eq!(set, new);
    }
}

#[test]
fn missing_meta_is_created() {
    let new = edited(r#"{"params":{"name":"x"}}"#, |edits| {
        edits
            .set_text(&["params", "_meta", "io.modelcontextprotocol/protocolVersion"], "2026-07-28")
            .set(&["params", "_meta", "io.modelcontextprotocol/clientCapabilities"], "{}");
    });
    assert_eq!(
        new,
        r#"{"params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#
    );
}

/// E39: the argument is removed, and numbers beside it stay as written.
#[test]
fn argument_is_removed() {
    for (arguments, left) in [
        (r#"{"session_id":"sp_x","a":1.10}"#, r#"{"a":1.10}"#),
        (r#"{"a":1.10,"session_id":"sp_x","b":1e400}"#, r#"{"a":1.10,"b":1e400}"#),
        (r#"{"a":1.10,"session_id":"sp_x"}"#, r#"{"a":1.10}"#),
        (r#"{"session_id":"sp_x"}"#, r#"{}"#),
        ("{\n  \"session_id\" : \"sp_x\" ,\n  \"a\" : 1\n}", "{\n  \"a\" : 1\n}"),
        ("{\n  \"a\" : 1 ,\n  \"session_id\" : \"sp_x\"\n}", "{\n  \"a\" : 1\n}"),
        ("{ \"a\" : 1 , \"session_id\" : \"sp_x\" , \"b\" : 2 }", "{ \"a\" : 1 , \"b\" : 2 }"),
        ("{ \"session_id\" : {\"deep\":[1,{}]} }", "{  }"),
        (r#"{"session\u005fid":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":1}"#, r#"{"a":1}"#),
        ("null", "null"),
        ("[1]", "[1]"),
    ] {
        let json = format!(r#"{{"params":{{"name":"t","arguments":{arguments}}}}}"#);
        let new = edited(&json, |edits| {
            edits.remove(&["params", "arguments", "session_id"]);
        });
        assert_eq!(new, format!(r#"{{"params":{{"name":"t","arguments":{left}}}}}"#));
    }
}

/// A duplicate that is left would become effective.
#[test]
fn duplicate_members_are_all_removed_or_replaced_by_one() {
    let json = r#"{"a":1,"x":1,"\u0061":2,"a":3}"#;
    let gone = edited(json, |edits| {
        edits.remove(&["a"]);
    });
    assert_eq!(gone, r#"{"x":1}"#);
    let set = edited(json, |edits| {
        edits.set(&["a"], "9");
    });
    assert_eq!(set, r#"{"x":1,"a":9}"#);
    let error = refused(r#"{"p":{},"p":{}}"#, |edits| {
        edits.set(&["p", "a"], "1");
    });
    assert_eq!(error, EditError::Ambiguous { path: "p".to_owned() });
}

#[test]
fn property_is_added_to_every_tool() {
    let list = r#"{"result":{"tools":[
        {"name":"a","inputSchema":{"type":"object","properties":{"x":{"minimum":1.10}}}},
        {"name":"b","inputSchema":{"properties":{ }, "required":[]}},
        {"name":"c","inputSchema":{"type":"object"}}]}}"#;
    let whole = Raw::parse(list).unwrap();
    let property = r#"{"type":"string"}"#;
    let new = edited(list, |edits| {
        for tool in whole.find(&["result", "tools"]).unwrap().elements() {
            edits.set_in(tool, &["inputSchema", "properties", "session_id"], property);
        }
        edits.set(&["result", "ttlMs"], "0");
    });
    assert_eq!(
        new,
        r#"{"result":{"tools":[
        {"name":"a","inputSchema":{"type":"object","properties":{"x":{"minimum":1.10},"session_id":{"type":"string"}}}},
        {"name":"b","inputSchema":{"properties":{"session_id":{"type":"string"} }, "required":[]}},
        {"name":"c","inputSchema":{"type":"object","properties":{"session_id":{"type":"string"}}}}],"ttlMs":0}}"#
    );
}

#[test]
fn result_gets_state_and_loses_its_type() {
    let json = r#"{"id":1,"result":{"resultType":"complete","content":[],"isError":false}}"#;
    let new = edited(json, |edits| {
        edits
            .set(&["result", crate::meta::META, crate::meta::STATE], r#"{"state":"kept"}"#)
            .remove(&["result", "resultType"]);
    });
    assert_eq!(
        new,
        r#"{"id":1,"result":{"content":[],"isError":false,"_meta":{"dev.stayput/state":{"state":"kept"}}}}"#
    );
    let only = edited(r#"{"result":{"resultType":"complete"}}"#, |edits| {
        edits.remove(&["result", "resultType"]).set(&["result", "a"], "1");
    });
    assert_eq!(only, r#"{"result":{"a":1}}"#);
}

#[test]
fn adjacent_members_are_removed_together() {
    let json = r#"{ "a":1, "b":2, "c":3, "d":4 }"#;
    for (names, left) in [
        (&["a", "b"][..], r#"{ "c":3, "d":4 }"#),
        (&["c", "d"], r#"{ "a":1, "b":2 }"#),
        (&["b", "d"], r#"{ "a":1, "c":3 }"#),
        (&["a", "c", "d"], r#"{ "b":2 }"#),
        (&["d", "b", "c", "a"], "{  }"),
    ] {
        let new = edited(json, |edits| {
            names.iter().for_each(|name| {
                edits.remove(&[name]);
            });
        });
        assert_eq!(new, left);
        let added = edited(json, |edits| {
            names.iter().for_each(|name| {
                edits.remove(&[name]);
            });
            edits.set(&["new"], "[]");
        });
        assert!(Raw::parse(&added).unwrap().find(&["new"]).is_some(), "{added}");
    }
}

#[test]
fn edits_without_effect_borrow_the_text() {
    let mut edits = Edits::new(r#"{"a":1}"#);
    edits.remove(&["b"]).remove(&["a", "c"]);
    assert!(matches!(edits.apply(), Ok(Cow::Borrowed(r#"{"a":1}"#))));
}

#[test]
fn impossible_edit_is_refused_as_a_whole() {
    let error = refused(r#"{"p":[1]}"#, |edits| {
        edits.set(&["p", "a"], "1");
    });
    assert_eq!(error.to_string(), "'p' cannot get a member, it is not an object");
    let error = refused("{}", |edits| {
        edits.set(&["a"], "1,\"b\":2");
    });
    assert!(
        matches!(error, EditError::Value { source, .. } if source.kind() == SyntaxKind::Trailing)
    );
    let error = refused("{\"a\":1", |edits| {
        edits.set(&["a"], "2");
    });
    assert!(matches!(error, EditError::Text(_)));
    let error = refused("{}", |edits| {
        edits.remove(&[]);
    });
    assert_eq!(error, EditError::Path { length: 0 });
    let deep = vec!["a"; 200];
    let error = refused("{}", |edits| {
        edits.set(&deep, "1");
    });
    assert_eq!(error, EditError::Path { length: 200 });
    let other = Raw::parse("[1, 2]").unwrap();
    let error = refused("{}", |edits| {
        edits.replace(other, "1");
    });
    assert_eq!(error, EditError::Foreign);
}

#[test]
fn conflicting_edits_are_refused() {
    let json = r#"{"a":{"b":1},"c":{}}"#;
    let whole = Raw::parse(json).unwrap();
    let (a, c) = (whole.find(&["a"]).unwrap(), whole.find(&["c"]).unwrap());
    let conflicts: [&dyn Fn(&mut Edits<'_>); 8] = [
        &|edits| _ = edits.set(&["a"], "1").set(&["a"], "2"),
        &|edits| _ = edits.set(&["a"], "1").set(&["a", "b"], "2"),
        &|edits| _ = edits.set(&["a", "b"], "1").remove(&["a"]),
        &|edits| _ = edits.remove(&["a"]).replace(a, "1"),
        &|edits| _ = edits.remove(&["a"]).set_in(a, &["x"], "1"),
        &|edits| _ = edits.set(&["c", "x"], "1").set_in(c, &["y"], "1"),
        &|edits| _ = edits.remove(&["a", "b"]).set_in(a, &["y"], "1"),
        &|edits| _ = edits.set(&["a", "b"], "1").set_in(a, &["b"], "1"),
    ];
    for edit in conflicts {
        let mut edits = Edits::new(json);
        edit(&mut edits);
        assert!(matches!(edits.apply(), Err(EditError::Conflict { .. })), "{:?}", edits.apply());
    }
}

/// Invariant 8.
#[test]
fn debug_shows_no_values() {
    let mut edits = Edits::new(r#"{"a":"sp_secret"}"#);
    edits.set_text(&["b"], "sp_other");
    assert_eq!(format!("{edits:?}"), "Edits(in 1 values of 17 bytes)");
}
