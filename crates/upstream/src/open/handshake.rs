//! Handshake of a link.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use stayput_wire::{Code, Era, Message, Raw, Version, json, meta};

use crate::{
    Call, CallError, ClientInfo, Delivery, InitializeResult, LinkOpenError, ServerProtocol,
    link::{Answer, CallOptions, Core, NegotiatedProtocol, RequestOrigin, compose, notification},
};

/// Failure of a handshake.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The server does not speak this era; another one may work.
    OtherEra(LinkOpenError),
    /// No other era is worth a try.
    Failed(LinkOpenError),
    /// The server speaks the modern era, but this process got `initialize`, too.
    Confused(LinkOpenError),
}

impl HandshakeError {
    pub(crate) fn into_error(self) -> LinkOpenError {
        match self {
            Self::OtherEra(error) | Self::Failed(error) | Self::Confused(error) => error,
        }
    }
}

/// Handshake to try with a server whose era is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeAttempt {
    /// In this way only.
    Only(ServerProtocol),
    /// With a process: modern, else legacy on the same process.
    ModernOrLegacy,
}

/// Performs the legacy handshake: `initialize` and `notifications/initialized`.
pub(crate) async fn initialize(
    core: &Arc<Core>,
    client_info: &ClientInfo,
    limit: Duration,
) -> Result<InitializeResult, HandshakeError> {
    let params = format!(
        r#"{{"protocolVersion":{},"capabilities":{},"clientInfo":{}}}"#,
        json::quote(Version::LATEST_LEGACY.as_str()),
        client_info.capabilities,
        client_info.info
    );
    let answer = first_call(core, "initialize", &params, limit).await.map_err(|error| {
        match error {
            // A modern server may not serve this path or method.
            LinkOpenError::Http { delivery: Delivery::Refused, .. } => {
                HandshakeError::OtherEra(error)
            }
            error => HandshakeError::Failed(error),
        }
    })?;
    let Some(result) = answer.result() else {
        return Err(HandshakeError::OtherEra(refused(core, &answer)));
    };
    let version = read(result, "protocolVersion").map(|version| Version::from(&*version));
    let version = version.ok_or_else(|| HandshakeError::Failed(nonsense(core, "initialize")))?;
    if version.era() != Era::Legacy {
        let offered = version.as_str().to_owned();
        let server = core.server.name().to_owned();
        return Err(HandshakeError::OtherEra(LinkOpenError::Version { server, offered }));
    }
    let initialize_result = InitializeResult::new(version.clone(), result);
    if core.server.is_process() {
        core.hold_requests(client_info.capabilities());
    }
    let _ = core.protocol.set(NegotiatedProtocol::new(version, client_info));
    let done = notification("notifications/initialized", None);
    core.transport
        .tell_first(core, done, limit)
        .await
        .map_err(|error| HandshakeError::Failed(LinkOpenError::of_call(core, error)))?;
    Ok(initialize_result)
}

/// Time after which a process that answers neither `server/discover` nor `ping` gets `initialize`, too.
const DISCOVER_ALONE: Duration = Duration::from_secs(1);

/// Performs the modern handshake with a process, or else the legacy one with the same process.
///
/// A refusal of `server/discover` leaves the process usable. If the process is silent, both requests are in flight, and
/// the first result decides. A modern process that does not refuse `initialize` is in the wrong era then: the caller starts
/// another one.
pub(crate) async fn discover_or_initialize(
    core: &Arc<Core>,
    client_info: &ClientInfo,
    limit: Duration,
) -> Result<InitializeResult, HandshakeError> {
    let deadline = crate::link::expiry(limit);
    let modern = NegotiatedProtocol::new(Version::LATEST, client_info);
    let meta: Vec<_> =
        modern.meta().map(|(key, value)| format!("{}:{value}", json::quote(key))).collect();
    let params = format!(r#"{{"{}":{{{}}}}}"#, meta::META, meta.join(","));
    let discover = send_first(core, "server/discover", &params, limit).await;
    let discover = discover.map_err(HandshakeError::Failed)?;
    let ping = send_first(core, "ping", &params, limit).await.map_err(HandshakeError::Failed)?;
    let mut discovered = Box::pin(async {
        let answer = first_answer(core, "server/discover", discover).await;
        discovered(core, &answer.map_err(HandshakeError::Failed)?)
    });
    let mut first = before_ping(&mut discovered, ping).await;
    if let Some(Ok(result)) = first {
        let _ = core.protocol.set(modern);
        return Ok(result);
    }
    let left = deadline.saturating_duration_since(tokio::time::Instant::now());
    let mut initialized = Box::pin(initialize(core, client_info, left));
    loop {
        tokio::select! {
            biased;
            result = &mut discovered, if first.is_none() => match result {
                Ok(result) => {
                    let refused = tokio::time::timeout(DISCOVER_ALONE, &mut initialized).await;
                    if !matches!(refused, Ok(Err(HandshakeError::OtherEra(_)))) {
                        return Err(HandshakeError::Confused(ended(core)));
                    }
                    let _ = core.protocol.set(modern);
                    return Ok(result);
                }
                Err(error) => first = Some(Err(error)),
            },
            result = &mut initialized => {
                // A modern server refuses `initialize`, maybe before it answers the request that came first.
                if matches!(result, Err(HandshakeError::OtherEra(_)))
                    && first.is_none()
                    && let Ok(discovered) = discovered.await
                {
                    let _ = core.protocol.set(modern);
                    return Ok(discovered);
                }
                return result;
            }
        }
    }
}

/// Waits for the result of `server/discover`. `None` if the process is silent to it: it answered the `ping` that was sent
/// behind it, or nothing for a second.
///
/// A legacy server answers `ping` before `initialize`, even if it does not answer methods that it does not know. A modern
/// server has no `ping` and refuses it, maybe before it answers `server/discover`, so that an error tells nothing.
async fn before_ping<T>(mut discovered: impl Future<Output = T> + Unpin, ping: Call) -> Option<T> {
    let pong = async {
        match ping.answer().await {
            Ok(answer) if answer.result().is_some() => {}
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        result = &mut discovered => return Some(result),
        () = pong => {}
        () = tokio::time::sleep(DISCOVER_ALONE) => {}
    }
    // Both answers may have come after the first one was looked for.
    tokio::select! {
        biased;
        result = &mut discovered => Some(result),
        () = std::future::ready(()) => None,
    }
}

/// Performs the modern handshake: `server/discover`.
pub(crate) async fn discover(
    core: &Arc<Core>,
    client_info: &ClientInfo,
    limit: Duration,
) -> Result<InitializeResult, HandshakeError> {
    let _ = core.protocol.set(NegotiatedProtocol::new(Version::LATEST, client_info));
    let mut answer = discover_once(core, limit).await?;
    if names_our_version(&answer) {
        // The server refused a version that it lists as supported. Nothing was executed, so that one retry is
        // safe, and it often succeeds.
        answer = discover_once(core, limit).await?;
    }
    discovered(core, &answer)
}

/// Reads the result of `server/discover`.
fn discovered(core: &Core, answer: &Answer) -> Result<InitializeResult, HandshakeError> {
    let Some(result) = answer.result() else {
        return Err(HandshakeError::OtherEra(refused(core, answer)));
    };
    let supported = versions(result);
    if !supported.contains(&Version::LATEST) {
        let server = core.server.name().to_owned();
        let offered = supported.iter().map(Version::as_str).collect::<Vec<_>>().join(", ");
        return Err(HandshakeError::OtherEra(LinkOpenError::Version { server, offered }));
    }
    Ok(InitializeResult::new(Version::LATEST, result))
}

async fn discover_once(core: &Arc<Core>, limit: Duration) -> Result<Answer, HandshakeError> {
    let answer = first_call(core, "server/discover", "{}", limit).await;
    answer.map_err(|error| match error {
        // Legacy servers answer an unknown method with silence or an invalid response.
        LinkOpenError::Silent { .. } | LinkOpenError::Http { delivery: Delivery::Refused, .. } => {
            HandshakeError::OtherEra(error)
        }
        error => HandshakeError::Failed(error),
    })
}

/// Whether a version error lists our version as supported.
fn names_our_version(answer: &Answer) -> bool {
    let error = answer.error().and_then(|error| Raw::parse(error).ok());
    let supported = error.and_then(|error| error.find(&["data", "supported"]));
    answer.code() == Some(Code::UNSUPPORTED_VERSION)
        && supported.is_some_and(|it| it.is_array() && listed(it).contains(&Version::LATEST))
}

fn listed(list: Raw<'_>) -> Vec<Version> {
    list.elements().filter_map(|version| Some(Version::from(&*version.text()?))).collect()
}

/// Versions in a `server/discover` result.
pub(crate) fn versions(result: &str) -> Vec<Version> {
    let Ok(result) = Raw::parse(result) else { return Vec::new() };
    let Some(list) = result.find(&["supportedVersions"]).filter(|list| list.is_array()) else {
        return Vec::new();
    };
    listed(list)
}

async fn first_call(
    core: &Arc<Core>,
    method: &str,
    params: &str,
    limit: Duration,
) -> Result<Answer, LinkOpenError> {
    let call = send_first(core, method, params, limit).await?;
    first_answer(core, method, call).await
}

/// Sends a request of the handshake.
async fn send_first(
    core: &Arc<Core>,
    method: &str,
    params: &str,
    limit: Duration,
) -> Result<Call, LinkOpenError> {
    let text = compose(method, Some(params));
    let message = Message::parse(text.as_bytes());
    let message = message.map_err(|_| nonsense(core, method))?;
    let options = CallOptions { limit: Some(limit), ..CallOptions::default() };
    let call = core.call(&message, options, RequestOrigin::Handshake).await;
    call.map_err(|error| first_error(core, method, error))
}

/// Waits for the answer to a request of the handshake.
async fn first_answer(core: &Core, method: &str, call: Call) -> Result<Answer, LinkOpenError> {
    call.answer().await.map_err(|error| first_error(core, method, error))
}

fn first_error(core: &Core, method: &str, error: CallError) -> LinkOpenError {
    match error {
        CallError::TimedOut { limit } => {
            let (server, method) = (core.server.name().to_owned(), method.to_owned());
            let not_messages = core.counts().invalid_lines.load(Ordering::Relaxed);
            LinkOpenError::Silent { server, method, limit, not_messages, hint: core.stderr_tail() }
        }
        error => LinkOpenError::of_call(core, error),
    }
}

fn ended(core: &Core) -> LinkOpenError {
    LinkOpenError::Ended { server: core.server.name().to_owned() }
}

fn refused(core: &Core, answer: &Answer) -> LinkOpenError {
    let code = answer.code().map_or(0, |code| code.0);
    let message = answer.error_message().unwrap_or_default();
    LinkOpenError::Refused { server: core.server.name().to_owned(), code, message }
}

fn nonsense(core: &Core, method: &str) -> LinkOpenError {
    let what = format!("its answer to `{method}` is not what the protocol asks for");
    LinkOpenError::Protocol { server: core.server.name().to_owned(), what }
}

fn read(result: &str, name: &str) -> Option<String> {
    Some(Raw::parse(result).ok()?.find(&[name])?.text()?.into_owned())
}
