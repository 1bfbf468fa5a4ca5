//! The interruption of a guest by its deadline or its caller's cancel token.
//!
//! A call that is shorter than a tick of the [`ticker`](crate::ticker) reads no clock. The ticker
//! stops a longer one by its [`watch`](crate::stop).

use std::time::{Duration, Instant};

use callbox_core::call::{CallOptions, CancelToken, Deadline};

pub(crate) use crate::stop::Interrupted;
use crate::stop::Lease;

/// When the current call is interrupted.
pub(crate) struct Interrupt {
    watch: Lease,
    deadline: Option<Deadline>,
    /// Whether the deadline is the limit of a single call, rather than the caller's.
    is_limit: bool,
    /// The caller's token, which the watch has, too.
    cancel: Option<CancelToken>,
    /// Why the guest was stopped when it ran last.
    stopped: Option<Interrupted>,
}

impl Interrupt {
    pub(crate) fn new(watch: Lease) -> Self {
        Self {
            watch,
            deadline: None,
            is_limit: false,
            cancel: None,
            stopped: None,
        }
    }

    /// Begins a call or an execution with the caller's deadline, or else the limit, whose time may
    /// have begun before.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        options: &CallOptions,
        limit: Option<Duration>,
        begun: Option<Instant>,
    ) {
        self.deadline = options.deadline.or_else(|| {
            let whole = limit?;
            let end = begun.and_then(|begun| begun.checked_add(whole));
            Some(end.map_or(Deadline::After(whole), |end| Deadline::Begun { end, whole }))
        });
        self.is_limit = options.deadline.is_none();
        self.set_token(options.cancel.as_ref());
        self.restart();
    }

    /// Begins another call of the same execution: the limit starts anew, the caller's deadline does
    /// not. Returns whether the time starts anew.
    #[inline]
    pub(crate) fn begin_next_call(&mut self) -> bool {
        if self.is_limit {
            let whole = self.whole();
            self.deadline = whole.map(Deadline::After);
            self.restart();
        }
        self.is_limit
    }

    fn restart(&mut self) {
        self.watch.set_deadline(self.deadline);
    }

    /// Sets the caller's token. It stays until a call has another one or none, so that a call with
    /// the token of the call before takes no lock and counts no reference.
    #[inline]
    fn set_token(&mut self, token: Option<&CancelToken>) {
        let is_set = match (&self.cancel, token) {
            (None, None) => true,
            (Some(set), Some(token)) => set.is_same(token),
            _ => false,
        };
        if !is_set {
            self.replace_token(token.cloned());
        }
    }

    #[cold]
    fn replace_token(&mut self, token: Option<CancelToken>) {
        self.watch.set_token(token.clone());
        self.cancel = token;
    }

    /// The caller's token.
    pub(crate) fn token(&self) -> Option<CancelToken> {
        self.cancel.clone()
    }

    /// The watch of the instance.
    pub(crate) fn watch(&self) -> &Lease {
        &self.watch
    }

    /// Lets the guest run until it is stopped.
    #[inline]
    pub(crate) fn arm(&mut self) {
        self.stopped = None;
        self.watch.arm();
    }

    /// Ends what [`Interrupt::arm`] began.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        self.stopped = self.watch.disarm();
    }

    /// Why the guest was stopped when it ran last, if it was.
    pub(crate) fn stopped(&self) -> Option<Interrupted> {
        self.stopped
    }

    /// The deadline as an instant. A duration counts from now if no tick has passed yet.
    pub(crate) fn instant(&self) -> Option<Instant> {
        self.watch.deadline()
    }

    /// Checks whether to enter the guest at all.
    #[inline]
    pub(crate) fn check_before(&self) -> Result<(), Interrupted> {
        self.check_cancelled()?;
        let is_over = match self.deadline {
            None => false,
            Some(Deadline::After(duration)) => duration.is_zero(),
            Some(Deadline::At(end) | Deadline::Begun { end, .. }) => Instant::now() >= end,
        };
        if is_over {
            return Err(Interrupted::Deadline);
        }
        Ok(())
    }

    /// Checks after work of the host, during which the ticker ran, whether to enter the guest.
    pub(crate) fn check_after(&self) -> Result<(), Interrupted> {
        self.check_cancelled()?;
        match self.instant() {
            Some(end) if Instant::now() >= end => Err(Interrupted::Deadline),
            _ => Ok(()),
        }
    }

    /// Checks in the host, which a guest has called, whether to go on.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        self.check_cancelled()?;
        if self.watch.is_late() {
            return Err(Interrupted::Deadline);
        }
        Ok(())
    }

    #[inline]
    fn check_cancelled(&self) -> Result<(), Interrupted> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Interrupted::Cancelled);
        }
        Ok(())
    }

    /// The time that the call has, if it is known.
    pub(crate) fn whole(&self) -> Option<Duration> {
        self.deadline.and_then(Deadline::whole)
    }

    /// The deadline, for a message.
    pub(crate) fn describe_deadline(&self) -> String {
        match self.whole() {
            Some(whole) => format!("its deadline of {whole:?}"),
            None => "its deadline".to_owned(),
        }
    }
}
