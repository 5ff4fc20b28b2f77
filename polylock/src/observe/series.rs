//! Which time series there are: one for each metric and set of labels that was measured.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use polylock_core::layers::Event;

use super::measure::{Measurement, Value, Words, measure, nothing};
use super::metric::Metric;

/// What every observer has over its `series`, whose `sink` has a `prefix`.
macro_rules! observer {
    ($observer:ident) => {
        impl $observer {
            /// Sets what is before the names. Default: `polylock`.
            #[must_use]
            pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
                self.series.sink.prefix = prefix.into();
                self
            }

            /// Declares classes, which are shown at zero from the first event of their backend on,
            /// or from [`show`](Self::show). Otherwise a panel without data looks broken, and
            /// Prometheus does not see an increase from nothing to 1.
            #[must_use]
            pub fn with_classes<C: Into<std::sync::Arc<str>>>(
                mut self,
                classes: impl IntoIterator<Item = C>,
            ) -> Self {
                let classes = classes.into_iter().map(Into::into);
                self.series.declared.extend(classes);
                self
            }

            /// Shows the declared classes at zero, for the backend that
            /// [`Capabilities`](crate::Capabilities) names.
            pub fn show(&self, backend: &'static str) {
                self.series.show(backend);
            }

            /// Counts a write that was refused because of its token, by
            /// [`StaleToken`](crate::fencing::StaleToken) for example. The library does not see
            /// these.
            pub fn count_stale_write(&self, class: &str) {
                self.series.record(&Measurement::stale_write(class));
            }
        }

        impl polylock_core::layers::Observer for $observer {
            fn event(&self, event: &polylock_core::layers::Event<'_>) {
                self.series.event(event);
            }
        }

        impl polylock_coordination::CoordinationObserver for $observer {
            fn happened(&self, event: &polylock_coordination::CoordinationEvent<'_>) {
                super::measure::coordination(event, |number| self.series.record(&number));
            }
        }

        #[cfg(feature = "tower")]
        impl polylock_tower::RejectionObserver for $observer {
            fn rejected(&self, rejected: &polylock_tower::RejectedRequest<'_>) {
                self.series.record(&super::measure::rejection(rejected, 1));
            }

            fn announced(&self, possible: &polylock_tower::RejectedRequest<'_>) {
                self.series.record(&super::measure::rejection(possible, 0));
            }
        }
    };
}

pub(super) use observer;

/// A library for metrics.
pub(super) trait Sink {
    /// What stands for one time series.
    type Handle;

    fn open(&self, measurement: &Measurement<'_>) -> Self::Handle;

    fn record(&self, metric: Metric, handle: &Self::Handle, value: Value);
}

/// The time series of an observer.
pub(super) struct MetricSeries<S: Sink> {
    pub(super) sink: S,
    classes: RwLock<HashMap<Arc<str>, ClassOf<S>>>,
    /// The classes to show before anything happens to them.
    pub(super) declared: Vec<Arc<str>>,
    /// Where they are shown.
    backends: RwLock<Vec<&'static str>>,
}

type ClassOf<S> = Arc<ClassSeries<<S as Sink>::Handle>>;

/// The time series of a class.
struct ClassSeries<H> {
    name: Arc<str>,
    handles: RwLock<HashMap<(Metric, Words), Arc<H>>>,
}

impl<S: Sink> MetricSeries<S> {
    pub(super) fn new(sink: S) -> Self {
        Self {
            sink,
            classes: RwLock::default(),
            declared: Vec::new(),
            backends: RwLock::default(),
        }
    }

    pub(super) fn event(&self, event: &Event<'_>) {
        if !self.declared.is_empty() && !read(&self.backends, |all| all.contains(&event.backend)) {
            self.show(event.backend);
        }
        measure(event, |measurement| self.record(&measurement));
    }

    /// Makes the series of the declared classes, at zero.
    pub(super) fn show(&self, backend: &'static str) {
        write(&self.backends, |all| {
            if !all.contains(&backend) {
                all.push(backend);
            }
        });
        for class in &self.declared {
            nothing(backend, class, |zero| self.record(&zero));
        }
    }

    pub(super) fn record(&self, measurement: &Measurement<'_>) {
        let Measurement {
            metric,
            value,
            words,
            ..
        } = *measurement;
        let class = self.class(measurement.class);
        let found = read(&class.handles, |all| all.get(&(metric, words)).cloned());
        let handle = found.unwrap_or_else(|| {
            let measurement = Measurement {
                class: &class.name,
                ..*measurement
            };
            // Two that open the same series get the same one from the library.
            let handle = Arc::new(self.sink.open(&measurement));
            write(&class.handles, |all| {
                all.insert((metric, words), Arc::clone(&handle))
            });
            handle
        });
        self.sink.record(metric, &handle, value);
    }

    /// The class of this name, or the one for all others if there are too many: a name that holds
    /// an id would make series without end. No class is forgotten, so that whatever was added to a
    /// gauge is taken from the same one.
    fn class(&self, name: &str) -> ClassOf<S> {
        if let Some(class) = read(&self.classes, |all| all.get(name).cloned()) {
            return class;
        }
        write(&self.classes, |all| {
            // Another thread may have made it since.
            if let Some(class) = all.get(name) {
                return Arc::clone(class);
            }
            let full = all.len() >= MAX_CLASSES && !self.declared.iter().any(|d| **d == *name);
            let name: Arc<str> = if full { OTHERS.into() } else { name.into() };
            let class = all.entry(Arc::clone(&name)).or_insert_with(|| {
                let handles = RwLock::default();
                Arc::new(ClassSeries { name, handles })
            });
            Arc::clone(class)
        })
    }
}

fn read<T, R>(lock: &RwLock<T>, look: impl FnOnce(&T) -> R) -> R {
    look(&lock.read().unwrap_or_else(PoisonError::into_inner))
}

fn write<T, R>(lock: &RwLock<T>, change: impl FnOnce(&mut T) -> R) -> R {
    change(&mut lock.write().unwrap_or_else(PoisonError::into_inner))
}

impl<S: Sink> fmt::Debug for MetricSeries<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricSeries")
            .field("classes", &read(&self.classes, HashMap::len))
            .field("declared", &self.declared)
            .finish_non_exhaustive()
    }
}

/// More values of a label than that make a dashboard useless, and the service for metrics slow.
const MAX_CLASSES: usize = 1_000;
/// The class of those that come when there are so many.
const OTHERS: &str = "other";
