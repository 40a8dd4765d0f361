//! Choice of the proxy for a server.

use ::http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;

use super::{ClientError, Target};

/// Proxy for requests to servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// Proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name, or the same in lower case. A
    /// server on this machine is always reached directly: to a proxy, `localhost` is the proxy.
    #[default]
    FromEnvironment,
    /// No proxy, whatever the environment says.
    None,
    /// Proxy with this URL.
    Url {
        /// URL of the proxy, with its user and password.
        url: Target,
        /// Hosts that are reached directly, written as in `NO_PROXY`.
        except: String,
    },
}

/// Configured proxies, and the hosts that they are for.
#[derive(Debug)]
pub(super) struct Proxies {
    matcher: Matcher,
    /// Credentials of a proxy that was given as a [`Target`], which keeps them apart from its URI.
    authorization: Option<HeaderValue>,
    spare_loopback: bool,
}

/// Proxy on the way to a server.
pub(super) struct ProxyRoute {
    pub(super) uri: Uri,
    pub(super) authorization: Option<HeaderValue>,
}

impl Proxies {
    /// Builds the proxies that `proxy` names. Returns `None` if there are none.
    pub(super) fn new(proxy: &Proxy) -> Result<Option<Self>, ClientError> {
        match proxy {
            Proxy::None => Ok(None),
            Proxy::FromEnvironment => Self::from_variables(|name| std::env::var(name).ok()),
            Proxy::Url { url, except } => Ok(Some(Self {
                matcher: Matcher::builder().all(url.uri().to_string()).no(except.as_str()).build(),
                authorization: url.authorization().cloned(),
                spare_loopback: false,
            })),
        }
    }

    fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, ClientError> {
        let value = |name: &str| {
            let lower = name.to_ascii_lowercase();
            // A CGI server puts the request header `Proxy`, which any client can set, into this variable.
            let foreign = name == "HTTP_PROXY" && read("REQUEST_METHOD").is_some();
            let upper = if foreign { None } else { read(name) };
            upper.filter(|value| !value.is_empty()).or_else(|| read(&lower)).unwrap_or_default()
        };
        let named = |name: &str| {
            let value = value(name);
            let readable = value.is_empty() || is_readable(&value);
            if readable { Ok(value) } else { Err(ClientError::Proxy { variable: name.to_owned() }) }
        };
        let (all, http, https) = (named("ALL_PROXY")?, named("HTTP_PROXY")?, named("HTTPS_PROXY")?);
        if all.is_empty() && http.is_empty() && https.is_empty() {
            return Ok(None);
        }
        let builder = Matcher::builder().all(all).http(http).https(https).no(value("NO_PROXY"));
        Ok(Some(Self { matcher: builder.build(), authorization: None, spare_loopback: true }))
    }

    /// Returns the proxy on the way to `uri`, if there is one.
    pub(super) fn proxy_for(&self, uri: &Uri) -> Option<ProxyRoute> {
        if self.spare_loopback && uri.host().is_some_and(is_loopback) {
            return None;
        }
        let found = self.matcher.intercept(uri)?;
        let authorization = self.authorization.as_ref().or(found.basic_auth()).cloned();
        Some(ProxyRoute { uri: found.uri().clone(), authorization })
    }
}

/// Returns whether the matcher can parse `value`. The matcher ignores a value that it cannot parse, and
/// requests would silently take a way that they must not take.
fn is_readable(value: &str) -> bool {
    let matcher = Matcher::builder().all(value.to_owned()).build();
    matcher.intercept(&Uri::from_static("http://host.test/")).is_some()
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(variables: &[(&str, &str)], to: &'static str) -> Option<String> {
        let read = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxies = Proxies::from_variables(read).unwrap()?;
        let via = proxies.proxy_for(&Uri::from_static(to))?;
        Some(via.uri.to_string())
    }

    /// R139: the proxy variables of the platform are respected.
    #[test]
    fn each_variable_selects_its_proxy() {
        let one = "http://one.test:3128/";
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(way(&[(name, one)], "http://a.test/").as_deref(), Some(one), "{name}");
        }
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(way(&[(name, one)], "https://a.test/").as_deref(), Some(one), "{name}");
        }
        assert_eq!(way(&[("HTTP_PROXY", one)], "https://a.test/"), None);
        assert_eq!(way(&[("HTTP_PROXY", ""), ("http_proxy", one)], "http://a.test/").unwrap(), one);
        assert_eq!(way(&[], "http://a.test/"), None);
        assert_eq!(way(&[("http_proxy", "one.test:3128")], "http://a.test/").unwrap(), one);
    }

    #[test]
    fn loopback_and_excluded_hosts_are_reached_directly() {
        let all = ("ALL_PROXY", "http://one.test:3128");
        for to in
            ["http://localhost:1/", "http://127.0.0.2/", "https://[::1]:1/", "http://a.localhost/"]
        {
            assert_eq!(way(&[all], to), None, "{to}");
        }
        let no = ("no_proxy", "a.test, 10.0.0.0/8");
        for to in ["http://a.test/", "https://b.a.test:1/", "http://10.1.2.3/"] {
            assert_eq!(way(&[all, no], to), None, "{to}");
        }
        assert!(way(&[all, no], "http://ba.test/").is_some());
    }

    #[test]
    fn cgi_proxy_header_is_ignored() {
        let variables = [("HTTP_PROXY", "http://eve.test"), ("REQUEST_METHOD", "GET")];
        assert_eq!(way(&variables, "http://a.test/"), None);
    }

    #[test]
    fn invalid_proxy_is_reported_without_its_password() {
        let read = |name: &str| (name == "https_proxy").then(|| "ftp://ann:s3cret@one.test".into());
        let error = Proxies::from_variables(read).unwrap_err();
        let message = format!("{error} {error:?}");
        assert!(message.contains("HTTPS_PROXY") && !message.contains("s3cret"), "{message}");
    }
}
