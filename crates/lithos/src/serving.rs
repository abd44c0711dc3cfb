//! What `serve` and the launchers of agents share: an engine that can be talked with, threads, and a server for a while.

use std::future::pending;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, anyhow};
use lithos_engine::Engine;
use lithos_server::ServerOptions;
use tokio::runtime::{Builder, Runtime};

use crate::args::ModelArgs;
use crate::model::{self, Given};

/// Requests that are answered side by side, where nothing else is asked for.
pub const SLOTS: usize = 4;

/// Opens a model that can be talked with, by so many at a time at most.
///
/// # Errors
/// One line that names the file and the cause; also for a model without tokenizer or chat template.
pub fn open(model: Given<'_>, args: &ModelArgs, slots: usize) -> anyhow::Result<Engine> {
    let engine = args.open_with_slots(model, slots)?.engine;
    engine.text()?.template()?;
    Ok(engine)
}

/// Threads for connections. The model has its own.
///
/// # Errors
/// If the system gives none.
pub fn runtime() -> anyhow::Result<Runtime> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| anyhow!("cannot start threads: {error}"))
}

/// A server within this process, on a port of loopback that was free. It ends with its value.
pub struct Serving {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Serving {
    /// Opens the model and serves it, without a log.
    ///
    /// # Errors
    /// As [`open`], or if there is no port.
    pub fn start(args: &ModelArgs) -> anyhow::Result<Self> {
        let engine = open(model::given(args.model.as_deref())?, args, SLOTS)?;
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = runtime()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        // It ends with the runtime, so what it returns reaches nobody.
        runtime.spawn(lithos_server::serve(listener, engine, ServerOptions::default(), pending()));
        Ok(Serving { address, _runtime: runtime })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
