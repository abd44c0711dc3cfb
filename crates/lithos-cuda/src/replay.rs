//! A pass: the same launches again and again, as one graph where the driver takes it.

use std::ptr;
use std::time::Duration;

use cudarc::driver::result::{graph, stream};
use cudarc::driver::sys::{
    CUevent_record_flags as RecordFlags, CUgraph, CUgraphExec, CUgraphInstantiate_flags,
    CUstreamCaptureMode,
};
use cudarc::driver::{DriverError, sys};

use crate::error::{Action, CudaError};
use crate::launch::{Kernel, Launch};
use crate::stream::{Event, Stream};

/// Launches in order, ready to be replayed.
#[derive(Debug)]
pub struct Replay {
    kernels: Vec<Kernel>,
    launches: Vec<Launch>,
    graph: Result<Graph, String>,
}

/// A graph of launches.
#[derive(Debug)]
struct Graph {
    graph: CUgraph,
    ready: CUgraphExec,
}

// SAFETY: a graph is a handle that one thread at a time uses.
unsafe impl Send for Graph {}

impl Replay {
    /// Captures the launches as a graph. Where the driver refuses, they are launched one by one, and [`Replay::refused`] says
    /// why. Kernels are named by their index.
    ///
    /// # Errors
    /// [`CudaError`] if there is no kernel of a launch's index.
    pub fn new(
        stream: &Stream,
        kernels: Vec<Kernel>,
        launches: Vec<Launch>,
    ) -> Result<Self, CudaError> {
        if let Some(launch) = launches.iter().find(|launch| launch.kernel >= kernels.len()) {
            return Err(CudaError::Driver {
                action: format!("find kernel {}", launch.kernel),
                cause: format!("there are {}", kernels.len()),
            });
        }
        stream.device.bind()?;
        let mut replay = Replay { kernels, launches, graph: Err(String::new()) };
        replay.graph = Graph::capture(stream, || replay.launch_each(stream))
            .map_err(|error| error.to_string());
        Ok(replay)
    }

    /// The launches.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// Why the launches are no graph, if they are none.
    pub fn refused(&self) -> Option<&str> {
        self.graph.as_ref().err().map(String::as_str)
    }

    /// Puts one pass into a stream.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn run(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.device.bind()?;
        match &self.graph {
            // SAFETY: the graph lives.
            Ok(graph) => unsafe { graph::launch(graph.ready, stream.stream) }.to("replay a pass"),
            Err(_) => self.launch_each(stream),
        }
    }

    fn launch_each(&self, stream: &Stream) -> Result<(), CudaError> {
        self.launches
            .iter()
            .try_for_each(|launch| self.kernels[launch.kernel].launch(stream, launch))
    }

    /// Time of each launch within a pass: the shortest of some repeats, after one that does not count.
    ///
    /// # Errors
    /// [`CudaError`] if a pass fails.
    pub fn time_each(
        &self,
        stream: &Stream,
        repeats: usize,
        limit: Duration,
    ) -> Result<Vec<Duration>, CudaError> {
        stream.device.bind()?;
        let events: Vec<Event> = (0..=self.launches.len())
            .map(|_| Event::new(&stream.device))
            .collect::<Result<_, _>>()?;
        // Within a graph a record must be said to be for those outside.
        let marked = |flags: RecordFlags| -> Result<(), CudaError> {
            let mark = |event: &Event| {
                // SAFETY: event and stream live.
                let result = unsafe {
                    sys::cuEventRecordWithFlags(event.event, stream.stream, flags as u32)
                };
                result.result().to("record an event")
            };
            mark(&events[0])?;
            for (launch, event) in self.launches.iter().zip(&events[1..]) {
                // Each by itself, or their times would overlap.
                let alone = Launch { overlaps: false, ..launch.clone() };
                self.kernels[launch.kernel].launch(stream, &alone)?;
                mark(event)?;
            }
            Ok(())
        };
        let graph = match self.graph {
            Ok(_) => Graph::capture(stream, || marked(RecordFlags::CU_EVENT_RECORD_EXTERNAL)).ok(),
            Err(_) => None,
        };
        let mut least = vec![Duration::MAX; self.launches.len()];
        for repeat in 0..=repeats {
            match &graph {
                Some(graph) => {
                    // SAFETY: the graph lives.
                    unsafe { graph::launch(graph.ready, stream.stream) }.to("replay a pass")?;
                }
                None => marked(RecordFlags::CU_EVENT_RECORD_DEFAULT)?,
            }
            stream.wait(limit)?;
            for (index, least) in least.iter_mut().enumerate().filter(|_| repeat > 0) {
                *least = (*least).min(events[index + 1].since(&events[index])?);
            }
        }
        Ok(least)
    }
}

impl Graph {
    /// What `work` puts into a stream, as a graph.
    fn capture(
        stream: &Stream,
        work: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        const MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives, and is not being captured.
        unsafe { stream::begin_capture(stream.stream, MODE) }.to("capture a pass")?;
        let worked = work();
        // Ended whatever happened, so that the stream is good for other work.
        // SAFETY: begun above.
        let graph = unsafe { stream::end_capture(stream.stream) };
        worked?;
        let graph = graph.to("capture a pass")?;
        if graph.is_null() {
            return Err(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED))
                .to("capture a pass");
        }
        let mut captured = Graph { graph, ready: ptr::null_mut() };
        // SAFETY: the graph was just captured.
        captured.ready = unsafe { graph::instantiate(graph, CUgraphInstantiate_flags(0)) }
            .to("make a graph of a pass")?;
        Ok(captured)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: each is destroyed once. A graph that still runs is kept by the driver until it has run.
        unsafe {
            if !self.ready.is_null() {
                let _ = graph::exec_destroy(self.ready);
            }
            let _ = graph::destroy(self.graph);
        }
    }
}
