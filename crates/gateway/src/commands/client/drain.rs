//! `stayput drain`.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{
    GatewayAddress, RemoteError, say,
    sessions::{ask, text},
};

/// Pause between two questions for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Moves the sessions of a gateway to others, and waits until that is done.
///
/// # Errors
/// [`RemoteError`] is a sentence for the user.
pub(crate) async fn run(way: &GatewayAddress, json: bool) -> Result<(), RemoteError> {
    let mut progress = ask(way, Method::POST, "/admin/drain").await?.json()?;
    while progress["phase"] != "drained" {
        tokio::time::sleep(POLL_INTERVAL).await;
        progress = ask(way, Method::GET, "/admin/drain").await?.json()?;
    }
    say(&if json { progress.to_string() } else { sentence(&progress) });
    Ok(())
}

fn sentence(progress: &Value) -> String {
    let count = |name: &str| match text(&progress[name]).as_str() {
        "1" => "1 session".to_owned(),
        count => format!("{count} sessions"),
    };
    let mut lines = vec![format!("drained: {} moved", count("moved"))];
    if progress["given_up"] != 0 {
        lines.push(format!(
            "{} had not ended at the deadline (`limits.drain`); state in processes is lost, and the next call says so",
            count("given_up")
        ));
    }
    if progress["held"] != 0 {
        lines.push(format!("{} stayed, because clients use them", count("held")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sentence_tells_what_was_lost() {
        let all = |moved, given_up, held| {
            sentence(
                &json!({ "phase": "drained", "moved": moved, "given_up": given_up, "held": held }),
            )
        };
        assert_eq!(all(1, 0, 0), "drained: 1 session moved");
        assert!(all(3, 2, 0).contains("3 sessions moved\n2 sessions had not ended"));
        assert!(all(0, 0, 1).ends_with("1 session stayed, because clients use them"));
    }
}
