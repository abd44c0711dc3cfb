//! Serves a model without weights, to try clients against: `cargo run -p lithos-server --example fake [ADDRESS]`.

#[path = "../tests/fake/mod.rs"]
mod fake;

use lithos_server::{DEFAULT_ADDRESS, ServerOptions, serve};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("http://{}/v1", listener.local_addr()?);
    let (model, _control) = fake::FakeModel::new();
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("interrupts are not seen: {error}");
        }
    };
    serve(listener, model, ServerOptions::default(), interrupted).await?;
    Ok(())
}
