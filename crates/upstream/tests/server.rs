//! Configuration of servers, and the identity of links.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{borrow::Cow, collections::HashSet, ffi::OsString, sync::Arc};

use ::http::{HeaderName, HeaderValue};
use async_trait::async_trait;
use stayput_core::{Owner, SessionId, Timestamp};
use stayput_http::{Proxy, Target, Trust};
use stayput_upstream::*;
use stayput_wire::Era;

fn place(owner: &str) -> LinkOwner {
    let owner = Owner::verified("https://id.example.com", owner).unwrap();
    LinkOwner::new(owner, SessionId::generate(Timestamp::from_millis(1)))
}

fn expansion(place: &LinkOwner) -> Expansion {
    let scope = Scope::new(Isolation::PerSession, place);
    Expansion::new(&scope).with_session_dir("/s".into()).with_owner_dir("/o".into())
}

fn server(transport: impl Into<TransportConfig>) -> Server {
    Server::new("x", transport).unwrap()
}

fn says(transport: impl Into<TransportConfig>) -> String {
    Server::new("x", transport).unwrap_err().to_string()
}

fn launch(server: &Server, expansion: &Expansion) -> Launch {
    match server.resolve(expansion).unwrap() {
        ResolvedTransport::Stdio(launch) => launch,
        other => panic!("{other:?}"),
    }
}

fn endpoint(server: &Server, expansion: &Expansion) -> Endpoint {
    match server.resolve(expansion).unwrap() {
        ResolvedTransport::Http(endpoint) | ResolvedTransport::Sse(endpoint) => endpoint,
        other @ ResolvedTransport::Stdio(_) => panic!("{other:?}"),
    }
}

fn env<'a>(launch: &'a Launch, name: &str) -> Option<&'a str> {
    let found: Vec<_> = launch.env.iter().filter(|(known, _)| known == name).collect();
    assert!(found.len() <= 1, "{name} twice");
    found.first().and_then(|(_, value)| value.to_str())
}

/// R160: the id of a session can be in an argument of its process, and in every other setting.
#[test]
fn values_are_expanded_in_all_settings_of_a_process() {
    let stdio = Stdio::new("${owner.dir}/bin")
        .args(["--session-id=${session.hash}", "a b", "", "$${session.dir}", "${X}"])
        .env("MEMORY_FILE_PATH", "${session.dir}/memory.jsonl")
        .cwd("${session.dir}");
    let place = place("ann");
    let started = launch(&server(stdio), &expansion(&place));
    assert_eq!(started.command, "/o/bin");
    let session = started.args[0].to_str().unwrap().strip_prefix("--session-id=").unwrap();
    assert!(session.len() == 32 && !session.contains(&place.session.to_string()));
    assert_eq!(started.args[1..], ["a b", "", "${session.dir}", "${X}"].map(OsString::from));
    assert_eq!(env(&started, "MEMORY_FILE_PATH"), Some("/s/memory.jsonl"));
    assert_eq!(started.cwd.as_deref(), Some("/s".as_ref()));
}

#[test]
fn child_inherits_few_variables() {
    let started = |stdio| launch(&server(stdio), &Expansion::default());
    let usual = started(Stdio::new("x"));
    assert_eq!(env(&usual, "PATH"), std::env::var("PATH").ok().as_deref());
    assert!(env(&usual, "CARGO_MANIFEST_DIR").is_none(), "not one of those that are inherited");
    let more = started(Stdio::new("x").inherit(["CARGO_MANIFEST_DIR", "NOT_SET_ANYWHERE"]));
    assert!(env(&more, "CARGO_MANIFEST_DIR").is_some() && env(&more, "PATH").is_some());
    assert!(env(&more, "NOT_SET_ANYWHERE").is_none());
    let less = started(Stdio::new("x").inherit_nothing().env("A", "1").env("A", "2"));
    assert_eq!(less.env, [("A".into(), "2".into())]);
    let own = started(Stdio::new("x").env("PATH", "/own"));
    assert_eq!(env(&own, "PATH"), Some("/own"));
}

#[test]
fn values_are_expanded_in_url_and_headers() {
    let http = Http::new("https://${owner.hash}.example.com/${session.hash}?k=$${X}")
        .header("X-Tenant", "t-${owner.hash}")
        .header("Accept", "application/json")
        .bearer("old")
        .bearer("new");
    let sent = endpoint(&server(http), &expansion(&place("ann")));
    let tenant = sent.headers["x-tenant"].to_str().unwrap();
    let owner = tenant.strip_prefix("t-").unwrap();
    assert_eq!(sent.url.host_str().unwrap(), format!("{owner}.example.com"));
    assert!(sent.url.query().unwrap().contains("X"));
    assert_eq!(sent.headers["authorization"], "Bearer new");
    assert_eq!(sent.headers.len(), 2, "the transport says what it accepts");
    assert!(sent.headers.values().all(HeaderValue::is_sensitive));
}

#[test]
fn unusable_setting_is_reported_when_the_server_is_built() {
    let stdio = || Stdio::new("x");
    for (said, expected) in [
        (says(Stdio::new("")), "the command is empty"),
        (says(stdio().args(["a", "b\0"])), "argument 2 has a NUL"),
        (
            says(stdio().args(["a", "${session.dirr}"])),
            "argument 2 has the unknown ${session.dirr}",
        ),
        (says(stdio().env("K", "${owner.hsh}")), "the most similar one is ${owner.hash}"),
        (says(stdio().env("K", "${owner.dir")), "'K' has a ${ that is not closed"),
        (says(stdio().env("K=V", "")), "environment variable 1"),
        (says(stdio().inherit(["STAYPUT_LINK"])), "'STAYPUT_LINK' is set by Stayput"),
        (says(Http::new("")), "its URL cannot be used"),
        (says(Http::new("ftp://h/")), "neither with http:// nor with https://"),
        (says(Http::new("https:///")), "its URL cannot be used"),
        (says(Http::new("https://h/${session.dir}")), "a folder of this machine"),
        (says(Http::new("https://h").header("a b", "c")), "header 1"),
        (says(Http::new("https://h").header("a", "c\n")), "the header 'a'"),
        (says(Http::new("https://h").header("a", "${owner.dir}")), "a folder of this machine"),
        (says(Http::new("https://h").header("Mcp-Session-Id", "c")), "written by Stayput"),
        (says(TransportConfig::Sse(Http::new("h"))), "its URL cannot be used"),
    ] {
        assert!(said.starts_with("the server \"x\" cannot be used: "), "{said}");
        assert!(said.contains(expected), "{said}\nhas no: {expected}");
    }
    for name in ["", "a\nb", &"x".repeat(129)] {
        let error = Server::new(name, Stdio::new("x")).unwrap_err();
        assert_eq!(error.problem(), &ServerProblem::Name);
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn shared_server_cannot_use_values_that_differ() {
    let with = |isolation, text: &str| {
        let options = Options { isolation: Some(isolation), ..Options::default() };
        Server::with("x", Stdio::new("x").args([text]), options)
    };
    assert!(with(Isolation::PerSession, "${session.dir}${owner.dir}").is_ok());
    assert!(with(Isolation::PerOwner, "${owner.dir}").is_ok());
    assert!(with(Isolation::Shared, "x").is_ok());
    let said = with(Isolation::PerOwner, "${session.dir}").unwrap_err().to_string();
    assert!(said.contains("isolation is per-owner"), "{said}");
    assert!(with(Isolation::Shared, "${owner.hash}").is_err());

    let session = server(Stdio::new("x").args(["${session.hash}"]));
    let error = session.resolve(&Expansion::new(&Scope::Shared)).unwrap_err().to_string();
    assert!(error.contains("argument 1 has ${session.hash}, and this link has none"), "{error}");
}

#[test]
fn isolation_follows_the_era_and_what_the_templates_need() {
    let plain = server(Stdio::new("x"));
    assert_eq!(plain.isolation(Era::Legacy), Isolation::PerSession);
    assert_eq!(plain.isolation(Era::Modern), Isolation::Shared);
    assert!(!plain.depends_on_session() && !plain.depends_on_owner());
    let owner = server(Http::new("https://h/${owner.hash}"));
    assert_eq!(owner.isolation(Era::Modern), Isolation::PerOwner);
    assert!(!owner.depends_on_session() && owner.depends_on_owner());
    let session = server(Stdio::new("x").env("K", "${session.dir}"));
    assert_eq!(session.isolation(Era::Modern), Isolation::PerSession);
    assert!(session.depends_on_session() && !session.depends_on_owner());
    let provided = server(Http::new("https://h").provider(Arc::new(Tokens("a"))));
    assert_eq!(provided.isolation(Era::Modern), Isolation::PerOwner);
}

/// R017, E36: every setting counts by which a server could distinguish two links.
#[test]
fn each_difference_makes_another_identity() {
    let stdio = || Stdio::new("x").inherit_nothing();
    let http = || Http::new("https://h/");
    let own = Trust { ca_files: vec!["/ca.pem".into()], ..Trust::default() };
    let all: Vec<TransportConfig> = vec![
        stdio().into(),
        Stdio::new("x").into(),
        stdio().args(["a", "b"]).into(),
        stdio().args(["ab"]).into(),
        stdio().args(["a"]).env("b", "").into(),
        stdio().args(["a"]).cwd("b").into(),
        stdio().env("a", "b").into(),
        stdio().env("a", "c").into(),
        stdio().env("ab", "").into(),
        stdio().args(["${session.hash}"]).into(),
        stdio().args(["${owner.hash}"]).into(),
        stdio().args(["$${session.hash}"]).into(),
        http().into(),
        TransportConfig::Sse(http()),
        Http::new("https://h/?k=1").into(),
        Http::new("https://u:p@h/").into(),
        http().header("a", "b").into(),
        http().bearer("one").into(),
        http().bearer("two").into(),
        http().provider(Arc::new(Tokens("a"))).into(),
        http().provider(Arc::new(Tokens("b"))).into(),
        http().proxy(Proxy::None).into(),
        http().trust(own).into(),
    ];
    let expansion = expansion(&place("ann"));
    let ids = |transport: &TransportConfig| server(transport.clone()).identity(&expansion);
    let identities: HashSet<Identity> = all.iter().map(ids).collect();
    assert_eq!(identities.len(), all.len());
    assert!(all.iter().all(|transport| identities.contains(&ids(transport))), "not stable");
}

/// E23: two owners never share a link that depends on the owner.
#[test]
fn identity_depends_only_on_the_values_in_use() {
    let (ann, bob) = (expansion(&place("ann")), expansion(&place("bob")));
    let plain = server(Stdio::new("x"));
    assert_eq!(plain.identity(&ann), plain.identity(&bob));
    let owner = server(Http::new("https://h").header("k", "${owner.hash}"));
    assert_ne!(owner.identity(&ann), owner.identity(&bob));
    assert_ne!(owner.profile_identity(&ann), owner.profile_identity(&bob));
    let provided = server(Http::new("https://h").provider(Arc::new(Tokens("a"))));
    assert_ne!(provided.identity(&ann), provided.identity(&bob));
    let session = server(Stdio::new("x").args(["${session.hash}"]));
    assert_ne!(session.identity(&ann), session.identity(&bob));
    assert_eq!(session.profile_identity(&ann), session.profile_identity(&bob));
}

/// R017, E23, E24: the key contains server, owner and session. The same configuration under another name is another
/// server.
#[test]
fn link_key_contains_server_and_scope() {
    let (one, other) = (server(Stdio::new("x")), Server::new("y", Stdio::new("x")).unwrap());
    let (ann, bob) = (place("ann"), place("bob"));
    let again = LinkOwner::new(ann.owner.clone(), SessionId::generate(Timestamp::from_millis(2)));
    let stolen = LinkOwner::new(bob.owner.clone(), ann.session);
    let branch = ann.clone().branch(1);
    let key = |isolation, place| LinkKey::for_owner(&one, isolation, place);

    let own = Isolation::PerSession;
    let keys = [&ann, &bob, &again, &stolen, &branch].map(|place| key(own, place));
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 5);
    assert_eq!(key(own, &ann), LinkKey::for_owner(&one.clone(), own, &ann));
    assert_ne!(key(own, &ann), LinkKey::for_owner(&other, own, &ann));
    let changed = server(Stdio::new("x").env("K", "V"));
    assert_ne!(key(own, &ann), LinkKey::for_owner(&changed, own, &ann));

    let per_owner = Isolation::PerOwner;
    assert_eq!(key(per_owner, &ann), key(per_owner, &again));
    assert_ne!(key(per_owner, &ann), key(per_owner, &bob));
    assert_eq!(key(Isolation::Shared, &ann), key(Isolation::Shared, &bob));
    assert_eq!(key(Isolation::Shared, &ann).scope().owner(), None);
}

/// Invariant 8, E36: no output shows a secret, and no key contains one.
#[test]
fn no_output_shows_a_secret() {
    let stdio = Stdio::new("x").args(["--token=secret"]).env("KEY", "secret");
    let http = Http::new("https://u:secret@h/secret?k=secret").bearer("secret").proxy(Proxy::Url {
        url: Target::parse("http://u:secret@proxy:1").unwrap(),
        except: String::new(),
    });
    for transport in [TransportConfig::from(stdio), TransportConfig::from(http)] {
        let server = server(transport.clone());
        let resolved = server.resolve(&Expansion::default()).unwrap();
        let key = LinkKey::for_owner(&server, Isolation::Shared, &place("ann"));
        let shown = format!("{transport:?} {server:?} {resolved:?} {key:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("KEY") || shown.contains("https://h"), "{shown}");
    }
    for error in [
        says(Http::new("https://u:secret@h:x/?secret")),
        says(Http::new("secret secret")),
        says(Http::new("https://h").header("secret: x", "y")),
        says(Http::new("https://h").header("k", "secret\n")),
        says(Stdio::new("x").env("A=secret", "")),
        says(Stdio::new("x").env("A", "secret\0")),
    ] {
        assert!(!error.contains("secret"), "{error}");
    }
}

#[derive(Debug)]
struct Tokens(&'static str);

#[async_trait]
impl HeaderProvider for Tokens {
    fn identity(&self) -> Cow<'_, str> {
        self.0.into()
    }

    async fn headers(
        &self,
        ask: &HeaderRequest<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderError> {
        let subject = ask.scope.owner().and_then(Owner::subject).unwrap_or("nobody");
        let token = format!("Bearer {} {subject} {} {}", self.0, ask.server.name(), ask.rejected);
        let name = match self.0 {
            "bad" => HeaderName::from_static("mcp-session-id"),
            _ => ::http::header::AUTHORIZATION,
        };
        Ok(vec![(name, HeaderValue::try_from(token).map_err(|_| ProviderError::new("odd"))?)])
    }
}

/// R113, R116: each request gets its own headers for the owner of the link, and new ones after a refusal.
#[tokio::test]
async fn provider_is_asked_for_each_request() {
    let http = Http::new("https://h").bearer("static").header("k", "v");
    let server = server(http.clone().provider(Arc::new(Tokens("a"))));
    let scope = Scope::new(Isolation::PerOwner, &place("ann"));
    let sent = endpoint(&server, &Expansion::new(&scope));
    let ask = HeaderRequest::new(&server, &scope);
    let headers = sent.request_headers(&ask).await.unwrap();
    assert_eq!(headers["authorization"], "Bearer a ann x false");
    assert_eq!(headers["k"], "v");
    assert!(headers["authorization"].is_sensitive());
    let again = sent.request_headers(&ask.rejected()).await.unwrap();
    assert_eq!(again["authorization"], "Bearer a ann x true");
    let shared = HeaderRequest::new(&server, &Scope::Shared);
    let headers = sent.request_headers(&shared).await.unwrap();
    assert_eq!(headers["authorization"], "Bearer a nobody x false");

    let bad = Server::new("x", http.provider(Arc::new(Tokens("bad")))).unwrap();
    let error = endpoint(&bad, &Expansion::default()).request_headers(&ask).await.unwrap_err();
    assert!(error.to_string().contains("'mcp-session-id'"), "{error}");
}
