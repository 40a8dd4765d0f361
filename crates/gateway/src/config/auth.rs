//! Authentication settings: `auth` and `public_url`.

use std::{net::Ipv4Addr, os::unix::fs::MetadataExt as _, time::Duration};

use http::HeaderName;
use serde_json::{Map, Value};
use stayput_config::{ClaimFilter, ConfigValue, Member, Problem, ReadResult, keys as common};
use stayput_http::Target;

use super::keys;
use crate::auth::{Bearer, Claims, KeySource, MetricsAccess, Network, Proxy, TokenHash, Tokens};

/// Default tolerance between the clocks of an issuer and of this machine.
const LEEWAY: Duration = Duration::from_secs(60);

/// Authentication settings.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    pub(crate) tokens: Tokens,
    pub(crate) jwt: Option<JwtRules>,
    pub(crate) proxy: Option<Proxy>,
    /// Claims of administrators. Unrestricted, which is the default, means that no claim makes an administrator.
    pub(crate) admin: ClaimFilter,
    /// Clients that may read `/metrics`.
    pub(crate) metrics: MetricsAccess,
}

/// Rules for tokens of an issuer.
#[derive(Debug)]
pub(crate) struct JwtRules {
    pub(crate) issuer: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) keys: KeySource,
    pub(crate) subject: String,
    pub(crate) leeway: Duration,
}

impl Auth {
    /// Whether there is no authentication.
    pub(crate) fn is_none(&self) -> bool {
        self.tokens.is_empty() && self.jwt.is_none() && self.proxy.is_none()
    }
}

/// Refuses `for` in a server if there is no authentication: then no client has claims that could match.
pub(super) fn require_auth_for_visibility(member: &Member<'_>) -> ReadResult<()> {
    // An entry that is disabled need not be a valid object.
    let own = member.value.object().ok();
    let own = own.as_ref().and_then(|entry| entry.get(common::STAYPUT)?.object().ok());
    if let Some(whom) = own.as_ref().and_then(|own| own.get("for")) {
        let sentence = "there is no \"auth\", so that no client has claims; add it to the \"stayput\" object at the top of the file, or \
                        remove \"for\"";
        return Err(whom.error(Problem::Other(sentence.to_owned())));
    }
    Ok(())
}

/// Reads the public URL of the gateway, without a trailing slash.
pub(super) fn public_url(setting: &ConfigValue<'_>) -> ReadResult<String> {
    let text = setting.text()?;
    secure(setting, &text)?;
    Ok(text.trim_end_matches('/').to_owned())
}

/// Reads `auth`. The default audience of tokens is `public_url`.
pub(super) fn auth(setting: &ConfigValue<'_>, public_url: Option<&str>) -> ReadResult<Auth> {
    let table = setting.object_with_keys(keys::AUTH)?;
    let mut known = Tokens::default();
    table.read("tokens", |setting| tokens(setting, &mut known))?;
    table.read("tokens_file", |setting| tokens_file(setting, &mut known))?;
    let jwt = table.read("jwt", |setting| jwt(setting, public_url))?;
    let admin = table.read("admin", ClaimFilter::read)?.unwrap_or_default();
    let metrics = table.read("metrics", |setting| {
        setting.choice(&[
            ("admin", MetricsAccess::Admin),
            ("authenticated", MetricsAccess::Authenticated),
            ("public", MetricsAccess::Public),
        ])
    })?;
    let (proxy, metrics) = (table.read("proxy", proxy)?, metrics.unwrap_or_default());
    let auth = Auth { tokens: known, jwt, proxy, admin, metrics };
    if auth.is_none() {
        let sentence = "no client could authenticate; add \"tokens\", \"jwt\" or \"proxy\", or remove \"auth\"";
        return Err(setting.error(Problem::Other(sentence.to_owned())));
    }
    Ok(auth)
}

/// Reads tokens by the names of their bearers. A value is a hash, or an object with a hash.
fn tokens(setting: &ConfigValue<'_>, known: &mut Tokens) -> ReadResult<()> {
    for member in setting.object()?.iter() {
        let value = &member.value;
        let (hash, bearer) = if value.is_object() {
            let table = value.object_with_keys(keys::TOKEN)?;
            let hash = table.read("hash", ConfigValue::text)?;
            let expected = "an object with \"hash\"";
            let hash = hash.ok_or_else(|| value.error(Problem::Form { expected }))?;
            let claims = table.read("claims", claims)?.unwrap_or_default();
            let admin = table.read("admin", ConfigValue::boolean)?.unwrap_or_default();
            (hash, Bearer { claims, admin })
        } else {
            (value.text()?, Bearer::default())
        };
        insert(value, known, (&member.name, &hash), bearer)?;
    }
    Ok(())
}

/// Reads a file with a name and a hash in each line.
fn tokens_file(setting: &ConfigValue<'_>, known: &mut Tokens) -> ReadResult<()> {
    let path = setting.context.file(&setting.text()?).map_err(|problem| setting.error(problem))?;
    let unreadable = |error: std::io::Error| setting.error(Problem::Unreadable(error.kind()));
    let file = std::fs::File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.mode() & 0o022 != 0 {
        let sentence = "the file can be changed by others than its owner, who could let themselves in; run \
                        chmod go-w on it";
        return Err(setting.error(Problem::Other(sentence.to_owned())));
    }
    let text = std::io::read_to_string(file).map_err(unreadable)?;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair = line.rsplit_once(char::is_whitespace).map(|(name, hash)| (name.trim(), hash));
        let pair = pair.ok_or_else(|| {
            let sentence = format!("line {number} of the file is not a name and a hash");
            setting.error(Problem::Other(sentence))
        })?;
        insert(setting, known, pair, Bearer::default())?;
    }
    Ok(())
}

fn insert(
    setting: &ConfigValue<'_>,
    known: &mut Tokens,
    (name, hash): (&str, &str),
    bearer: Bearer,
) -> ReadResult<()> {
    let hash: TokenHash =
        hash.parse().map_err(|expected| setting.error(Problem::Form { expected }))?;
    let other = |sentence: String| setting.error(Problem::Other(sentence));
    match known.insert(name, hash, bearer) {
        Ok(true) => Ok(()),
        Ok(false) => Err(other(format!("the token of {name:?} is also that of another name"))),
        Err(error) => Err(other(error.to_string())),
    }
}

fn claims(setting: &ConfigValue<'_>) -> ReadResult<Claims> {
    let read = |setting: &ConfigValue<'_>| -> ReadResult<Value> {
        serde_json::from_str(setting.as_str())
            .map_err(|_| setting.error(Problem::Form { expected: "a value of JSON" }))
    };
    let table = setting.object()?;
    let pairs = table.iter().map(|member| Ok((member.name.to_string(), read(&member.value)?)));
    Ok(Claims(pairs.collect::<ReadResult<Map<String, Value>>>()?))
}

fn jwt(setting: &ConfigValue<'_>, public_url: Option<&str>) -> ReadResult<JwtRules> {
    let table = setting.object_with_keys(keys::JWT)?;
    let missing = |expected| setting.error(Problem::Form { expected });
    let issuer = table.read("issuer", |setting| {
        let text = setting.text()?;
        secure(setting, &text).map(|_| text)
    })?;
    let issuer = issuer.ok_or_else(|| missing("an object with \"issuer\""))?;
    let audiences = table.read("audience", |setting| match setting.list() {
        Ok(_) => setting.texts(),
        Err(_) => Ok(vec![setting.text()?]),
    })?;
    let audiences = audiences.or_else(|| Some(vec![public_url?.to_owned()]));
    // Without an audience a token for another service would be accepted here.
    let audiences = audiences.filter(|all| !all.is_empty());
    let audiences = audiences
        .ok_or_else(|| missing("an object with \"audience\", unless there is a \"public_url\""))?;
    let keys = table.read("jwks", |setting| {
        let text = setting.text()?;
        secure(setting, &text).map(KeySource::Set)
    })?;
    Ok(JwtRules {
        keys: keys.unwrap_or_else(|| KeySource::Issuer(issuer.clone())),
        subject: table.read("subject", ConfigValue::text)?.unwrap_or_else(|| "sub".to_owned()),
        leeway: table.read("leeway", ConfigValue::duration)?.unwrap_or(LEEWAY),
        issuer,
        audiences,
    })
}

/// Requires https, or a loopback address: over plain http anyone on the way could answer.
fn secure(setting: &ConfigValue<'_>, text: &str) -> ReadResult<Target> {
    let wrong = |sentence: String| setting.error(Problem::Other(sentence));
    let url = Target::parse(text).map_err(|error| wrong(error.to_string()))?;
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let is_local = local.iter().any(|start| {
        url.origin()
            .strip_prefix(start)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    });
    if url.origin().starts_with("https://") || is_local {
        return Ok(url);
    }
    Err(wrong("this must be https: answers over http can be forged".to_owned()))
}

fn proxy(setting: &ConfigValue<'_>) -> ReadResult<Proxy> {
    let table = setting.object_with_keys(keys::PROXY)?;
    let header = table.read("header", |setting| {
        let expected = "the name of a header such as \"X-Forwarded-User\"";
        let name: Result<HeaderName, _> = setting.text()?.parse();
        name.map_err(|_| setting.error(Problem::Form { expected }))
    })?;
    let expected = "an object with \"header\"";
    let header = header.ok_or_else(|| setting.error(Problem::Form { expected }))?;
    let from = table.read("from", |setting| {
        let read = |setting: &ConfigValue<'_>| -> ReadResult<Network> {
            let parsed = setting.text()?.parse();
            parsed.map_err(|expected| setting.error(Problem::Form { expected }))
        };
        setting.list()?.iter().map(read).collect::<ReadResult<Vec<_>>>()
    })?;
    let here = || vec![Network::host(Ipv4Addr::LOCALHOST.into())];
    Ok(Proxy { header, from: from.unwrap_or_else(here) })
}
