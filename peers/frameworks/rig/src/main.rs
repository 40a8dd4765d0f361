//! Rig through the gateway: one URL per conversation.

use std::{env, error::Error, process};

use rig_agent::tool::{ToolContext, server::ToolServer};
use rig_rmcp::McpClientHandler;
use rmcp::{model::ClientInfo, transport::StreamableHttpClientTransport};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gateway = env::args().nth(2).ok_or("the URL of the gateway is missing")?;
    let chat = format!("rig-{}", process::id());
    let mut texts = Vec::new();
    for text in ["milk", "bread"] {
        // A new connection for each turn, as an agent makes it.
        let transport =
            StreamableHttpClientTransport::from_uri(format!("{gateway}/mcp/notes/~{chat}"));
        let tools = ToolServer::new().run();
        let handler = McpClientHandler::new(ClientInfo::default(), tools.clone());
        let connection = handler.connect(transport).await?;
        let mut context = ToolContext::new();
        let arguments = format!(r#"{{"text":"{text}"}}"#);
        let _ = tools.execute("note_add", &arguments, &mut context).await;
        let listed = tools.execute("note_list", "{}", &mut context).await;
        texts.push(format!("{:?}", listed.output().as_content()));
        connection.cancel().await?;
    }
    let has = |at: usize, text: &str| texts.get(at).is_some_and(|it: &String| it.contains(text));
    if !(has(0, "milk") && !has(0, "bread") && has(1, "milk") && has(1, "bread")) {
        return Err(format!("{texts:?}").into());
    }
    println!("rig: the conversation goes on over connections");
    Ok(())
}
