//! Assertions on texts. One that fails prints the whole text.

/// Texts of which a test expects some words.
///
/// ```
/// use lastwords_testkit::text::Text as _;
///
/// "error: no such file".starts("error: ").has("file").lacks("panic").ends("such file");
/// ```
pub trait Text {
    /// Fails unless the text contains these words.
    #[track_caller]
    fn has(&self, words: &str) -> &Self;

    /// Fails if the text contains these words.
    #[track_caller]
    fn lacks(&self, words: &str) -> &Self;

    /// Fails unless the text starts with these words.
    #[track_caller]
    fn starts(&self, words: &str) -> &Self;

    /// Fails unless the text ends with these words.
    #[track_caller]
    fn ends(&self, words: &str) -> &Self;
}

impl Text for str {
    fn has(&self, words: &str) -> &Self {
        assert!(self.contains(words), "{words:?} is missing in\n{self}");
        self
    }

    fn lacks(&self, words: &str) -> &Self {
        assert!(!self.contains(words), "{words:?} is in\n{self}");
        self
    }

    fn starts(&self, words: &str) -> &Self {
        assert!(self.starts_with(words), "{words:?} is not at the start of\n{self}");
        self
    }

    fn ends(&self, words: &str) -> &Self {
        assert!(self.ends_with(words), "{words:?} is not at the end of\n{self}");
        self
    }
}
