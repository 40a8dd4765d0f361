//! A shopping cart for each conversation, over stdio and HTTP, for clients of both eras.
//!
//! ```text
//! cargo run -p stayput-server --features stores --example cart -- stdio
//! cargo run -p stayput-server --features stores --example cart -- http 127.0.0.1:8000 sqlite:cart.db
//! ```

use std::{error::Error as StdError, io::Write as _, sync::Arc};

use axum::serve::ListenerExt as _;
use rmcp::{
    ServerHandler, ServiceExt as _,
    handler::server::{tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
};
use stayput_server::{Error, ServerSessions, State};

#[derive(Clone)]
struct Shop {
    tools: Arc<ToolRouter<Self>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    sku: String,
}

#[tool_router]
impl Shop {
    #[tool(description = "Puts something into the cart of this conversation")]
    async fn add(&self, state: State, Parameters(item): Parameters<Item>) -> Result<String, Error> {
        let added = |cart: &mut Vec<String>| {
            cart.push(item.sku.clone());
            format!("{} in the cart: {}", cart.len(), cart.join(", "))
        };
        state.update("cart", added).await
    }

    #[tool(description = "Shows the cart of this conversation")]
    async fn show(&self, state: State) -> Result<String, Error> {
        let cart: Vec<String> = state.get("cart").await?.unwrap_or_default();
        Ok(format!("{} in the cart: {}", cart.len(), cart.join(", ")))
    }

    #[tool(description = "What the shop has")]
    async fn catalogue(&self) -> String {
        "apple, pear, quince".to_owned()
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Shop {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let sessions = ServerSessions::open(args.get(2).copied().unwrap_or("memory:")).await?;
    let tools = sessions.session_tools().stateful(["add", "show"]).mount(Shop::tool_router());
    let shop = Shop { tools: Arc::new(tools) };
    match args[..] {
        ["http", address, ..] => {
            let app = axum::Router::new()
                .route_service("/mcp", sessions.http_service(move || Ok(shop.clone())));
            let listener = tokio::net::TcpListener::bind(address).await?;
            writeln!(std::io::stdout(), "http://{}/mcp", listener.local_addr()?)?;
            // Without it, Nagle's algorithm delays every small response.
            let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
            axum::serve(listener, app).await?;
        }
        _ => drop(
            shop.serve(sessions.wrap_transport(rmcp::transport::stdio())).await?.waiting().await?,
        ),
    }
    Ok(())
}
