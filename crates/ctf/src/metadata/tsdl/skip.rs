//! Finds where to go on behind a declaration that is wrong, or of which a part is missing.

use super::lex::Word;
use super::parser::Parser;

/// The names of blocks.
const BLOCKS: [&str; 6] = ["trace", "env", "clock", "stream", "event", "callsite"];

impl Parser<'_> {
    fn word(&self, at: usize) -> &Word<'_> {
        self.words.get(at).map_or(&Word::End, |(word, _)| word)
    }

    /// Returns true if a block begins at this word. Blocks are never inside of anything, so this
    /// tells the end of a declaration that lacks its own. A word behind a loss may be the rest of
    /// another.
    pub(super) fn is_block(&self, at: usize) -> bool {
        let begins = matches!(self.word(at), Word::Name(name) if BLOCKS.contains(name))
            && *self.word(at.saturating_add(1)) == Word::Mark("{");
        let before = at.checked_sub(1).map(|before| self.word(before));
        begins
            && !matches!(
                before,
                Some(Word::Name("struct" | "variant" | "enum") | Word::Mark(":") | Word::Lost(_))
            )
    }

    /// Goes to the end of the declaration that begins at this word: behind its semicolon, to the
    /// next block, or behind a loss.
    pub(super) fn skip(&mut self, begin: usize) {
        let mut depth = 0i64;
        let mut at = begin;
        loop {
            match self.word(at) {
                Word::End => break,
                Word::Lost(_) => {
                    at = self.behind(at);
                    break;
                }
                Word::Mark(";") if depth <= 0 => {
                    at = at.saturating_add(1);
                    break;
                }
                Word::Mark("{") => depth = depth.saturating_add(1),
                Word::Mark("}") => depth = depth.saturating_sub(1),
                _ if at > begin && self.is_block(at) => break,
                _ => {}
            }
            at = at.saturating_add(1);
        }
        self.next = at;
    }

    /// Returns the first word behind a loss that certainly begins a declaration. How deep the words
    /// behind the loss are is only known from the next block, which is inside of nothing.
    fn behind(&self, lost: usize) -> usize {
        let from = lost.saturating_add(1);
        let mut to = from;
        while !matches!(self.word(to), Word::End | Word::Lost(_)) && !self.is_block(to) {
            to = to.saturating_add(1);
        }
        if matches!(self.word(to), Word::Lost(_)) {
            return to;
        }
        let (mut depth, mut best) = (0i64, to);
        for at in (from..to).rev() {
            match self.word(at) {
                Word::Mark("}") => depth = depth.saturating_add(1),
                Word::Mark("{") => depth = depth.saturating_sub(1),
                Word::Mark(";") if depth == 0 => best = at.saturating_add(1),
                _ => {}
            }
            if depth < 0 {
                break;
            }
        }
        best
    }
}
