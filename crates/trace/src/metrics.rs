//! Counters and histograms of an application, as its session has them. With the feature `serde` they
//! are serialized as docs/JSON.md describes.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};

/// The counters and histograms of a session, ordered by name and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Metrics {
    /// Counters.
    pub counters: Vec<Counter>,
    /// Histograms.
    pub histograms: Vec<Histogram>,
    /// When this copy of the numbers was made, in nanoseconds since 1970; none if they are those of
    /// the session itself. A session that was received over a network has a copy.
    #[cfg_attr(feature = "serde", serde(default))]
    pub as_of: Option<u64>,
    /// Entries of the tables that cannot be read: the counters or histograms there are unknown.
    pub unknown: u64,
    /// Additions to counters for which the table had no room.
    pub lost_additions: u64,
    /// Values of histograms for which the table had no room.
    pub lost_values: u64,
}

/// Key and value of each label, ordered by key.
pub type Labels = Vec<(String, String)>;

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Counter {
    /// Name.
    pub name: String,
    /// Labels.
    #[cfg_attr(feature = "serde", serde(with = "as_map"))]
    pub labels: Labels,
    /// The sum of what was added, modulo 2^64.
    pub value: u64,
}

/// A histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize))]
pub struct Histogram {
    /// Name.
    pub name: String,
    /// Labels.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "as_map::deserialize"))]
    pub labels: Labels,
    /// The buckets that have values, in order.
    pub buckets: Vec<Bucket>,
    /// The sum of all values; none if it may have passed 2^64, or is damaged. It may lack the values
    /// in flight.
    pub sum: Option<u64>,
    /// Values that are in the buckets, but that were not recorded whole when the process died or the
    /// memory was read: the sum may lack them.
    pub in_flight: u64,
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Bucket {
    /// Least value of the bucket.
    pub low: u64,
    /// Largest value of the bucket.
    pub high: u64,
    /// Values in it.
    pub count: u64,
}

impl Metrics {
    /// Returns true if there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.histograms.is_empty()
    }
}

impl Histogram {
    /// Returns the number of values, those in flight included.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// Returns the bucket with the value below which a part of all values are, in thousandths: 500
    /// is the median. The value itself is not known. Returns none without values.
    ///
    /// ```
    /// use lastwords_trace::metrics::{Bucket, Histogram};
    ///
    /// let buckets =
    ///     vec![Bucket { low: 4, high: 4, count: 9 }, Bucket { low: 16, high: 17, count: 1 }];
    /// let (name, labels) = ("size".to_owned(), Vec::new());
    /// let sizes = Histogram { name, labels, buckets, sum: Some(53), in_flight: 0 };
    /// assert_eq!(sizes.quantile(500).map(|bucket| (bucket.low, bucket.high)), Some((4, 4)));
    /// assert_eq!(sizes.quantile(990).map(|bucket| (bucket.low, bucket.high)), Some((16, 17)));
    /// ```
    #[must_use]
    pub fn quantile(&self, thousandths: u32) -> Option<Bucket> {
        let all = u128::from(self.count());
        let wanted = all.saturating_mul(thousandths.into()).div_ceil(1000).max(1);
        let mut before = 0u128;
        self.buckets.iter().copied().find(|bucket| {
            before = before.saturating_add(bucket.count.into());
            before >= wanted
        })
    }
}

#[cfg(feature = "serde")]
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Histogram", 6)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("labels", &as_map::map(&self.labels))?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum", &self.sum)?;
        fields.serialize_field("in_flight", &self.in_flight)?;
        fields.serialize_field("buckets", &self.buckets)?;
        fields.end()
    }
}

/// Serializes labels as a map.
#[cfg(feature = "serde")]
mod as_map {
    use super::Labels;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn map(labels: &Labels) -> BTreeMap<&str, &str> {
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    pub(super) fn serialize<S: Serializer>(labels: &Labels, to: S) -> Result<S::Ok, S::Error> {
        map(labels).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Labels, D::Error> {
        Ok(BTreeMap::deserialize(from)?.into_iter().collect())
    }
}
