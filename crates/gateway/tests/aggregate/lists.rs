//! Merged lists of all servers.

use serde_json::{Value, json};

use crate::{
    ALL, called, notes,
    support::{Client, Gateway, mark, stdio},
    tools,
};

/// Servers come in the order of their names, with all their pages. Nothing else changes.
#[tokio::test]
async fn tools_of_all_servers_are_one_list() {
    let mark = mark("all-lists");
    let servers = json!({
        "z.z": stdio(&mark, &[]), "notes": notes(), "a": stdio(&mark, &["--page", "4"]),
    });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    let listed = client.request(&gateway, "tools/list", json!({})).await;
    assert!(listed["result"]["nextCursor"].is_null());
    let names = called(&listed, "tools", "name");
    let of = |prefix: &str| names.iter().position(|name| name.starts_with(prefix)).unwrap();
    assert!(of("a__") < of("notes__") && of("notes__") < of("z_z__"), "{names:?}");
    let own = gateway.client("a").await;
    let mut pages = Vec::new();
    let mut params = json!({});
    loop {
        let page = own.request(&gateway, "tools/list", params).await;
        pages.extend(page["result"]["tools"].as_array().unwrap().clone());
        let next = &page["result"]["nextCursor"];
        if next.is_null() {
            break;
        }
        params = json!({ "cursor": next });
    }
    for tool in &mut pages {
        tool["name"] = format!("a__{}", tool["name"].as_str().unwrap()).into();
    }
    let shown = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(&shown[..pages.len()], &pages);
}

/// Fetches the whole list page by page.
async fn pages(client: &Client, gateway: &Gateway) -> Vec<Value> {
    let mut pages = vec![client.request(gateway, "tools/list", json!({})).await];
    while let Some(next) = pages.last().and_then(|page| page["result"]["nextCursor"].as_str()) {
        let page = client.request(gateway, "tools/list", json!({ "cursor": next })).await;
        assert!(page["result"].is_object(), "{page}");
        pages.push(page);
    }
    pages
}

/// A list that is too long for one page is split. A cursor is valid only for its own list.
#[tokio::test]
async fn long_list_is_split_into_pages() {
    let mark = mark("all-pages");
    let wordy = ["--page", "5", "--wordy", "60000"];
    let servers = json!({ "one": stdio(&mark, &wordy), "two": stdio(&mark, &wordy) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    let listed = pages(&client, &gateway).await;
    assert!(listed.len() > 2, "{}", listed.len());
    let names: Vec<_> = listed.iter().flat_map(|page| called(page, "tools", "name")).collect();
    let unique: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    for server in ["one", "two"] {
        let own = names.iter().filter(|name| name.starts_with(&format!("{server}__")));
        assert_eq!(own.count(), 21);
    }
    let cursor = listed[0]["result"]["nextCursor"].as_str().unwrap();
    for (method, cursor) in [
        ("prompts/list", json!(cursor)),
        ("tools/list", json!(&cursor[1..])),
        ("tools/list", json!("5")),
        ("tools/list", json!(5)),
    ] {
        let refused = client.request(&gateway, method, json!({ "cursor": cursor })).await;
        assert_eq!(refused["error"]["code"], -32602, "{method} {cursor}");
    }
    // The pages are the same if the servers are asked again because of a change.
    client.text(&gateway, "two__notify").await;
    let again = pages(&client, &gateway).await;
    let again: Vec<_> = again.iter().flat_map(|page| called(page, "tools", "name")).collect();
    assert_eq!(again, names);
}

/// A denied tool is neither listed nor callable on this path, whether the cache or the server supplies the list.
#[tokio::test]
async fn denied_tool_is_neither_listed_nor_callable() {
    let mark = mark("all-denied");
    let mut one = stdio(&mark, &[]);
    one["stayput"] = json!({ "tools": { "deny": ["crash"] } });
    let gateway = Gateway::start(json!({ "one": one, "two": stdio(&mark, &[]) })).await;
    let client = gateway.client(ALL).await;
    let crash = |listed: &[String], server: &str| listed.contains(&format!("{server}__crash"));
    let listed = tools(&client, &gateway).await;
    assert!(!crash(&listed, "one") && crash(&listed, "two"), "{listed:?}");
    let refused = client.call(&gateway, "one__crash", json!({})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    client.text(&gateway, "one__notify").await;
    let listed = tools(&client, &gateway).await;
    assert!(!crash(&listed, "one") && crash(&listed, "two"), "{listed:?}");
    let refused = client.call(&gateway, "one__crash", json!({})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(client.text(&gateway, "one__count").await, "1");
}
