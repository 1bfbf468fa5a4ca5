//! A bound on the bytes that a server sends, whatever they are of an answer.
//!
//! Bodies have limits of their own. Sizes of chunks, trailers and interim answers are read by the
//! client alone, which does so for ever.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

// These parts of the client may change with each of its releases.
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport,
};

/// The bytes of headers, chunks and trailers that an answer may have beside its body.
const OVERHEAD: u64 = 1 << 20;

/// How many bytes the server of the current request may still send.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance(Arc<AtomicU64>);

impl Allowance {
    /// Begins a request whose answer has a body of at most `most` bytes.
    pub(super) fn begin(&self, most: usize) {
        // Chunks of a few bytes each double the body.
        let all = (most as u64).saturating_mul(2).saturating_add(OVERHEAD);
        self.0.store(all, Ordering::Relaxed);
    }

    /// Whether the server has sent more.
    pub(super) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn spend(&self, count: u64) -> Result<(), Error> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(count);
        self.0.store(left, Ordering::Relaxed);
        if left > 0 {
            return Ok(());
        }
        let message = "the answer is longer than its body may be";
        Err(Error::Io(io::Error::other(message)))
    }

    /// Connections of the usual kind, which spend this allowance.
    pub(super) fn connector(&self) -> impl Connector {
        DefaultConnector::default().chain(Counting(self.clone()))
    }
}

#[derive(Debug)]
struct Counting(Allowance);

impl<In: Transport> Connector<In> for Counting {
    type Out = Counted<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|inner| Counted {
            inner,
            allowance: self.0.clone(),
        }))
    }
}

/// A connection, behind TLS if there is TLS.
struct Counted<T> {
    inner: T,
    allowance: Allowance,
}

impl<T: Transport> Transport for Counted<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let before = self.inner.buffers().input().len();
        let made_progress = self.inner.await_input(timeout)?;
        let after = self.inner.buffers().input().len();
        self.allowance.spend(after.saturating_sub(before) as u64)?;
        Ok(made_progress)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

impl<T> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}
