//! The messages from the reader of a dying process's memory to the saver: the facts of each
//! session, and the files of its copy. After the facts of a session, the saver answers whether it
//! wants the copy.
//!
//! A message is a byte of its kind, the length of its body (4 bytes, native order), and the body.
//! The saver trusts none of it: a body has a largest length, and what it means is checked where it
//! is used.

use anyhow::{Context, bail};
use lastwords_control::dead::{CopySink, Facts};
use std::io::{Read, Write};

/// Largest length of a body, in bytes.
const MOST: usize = 64 << 10;
/// Most bytes of a file in one message.
const PIECE: usize = 32 << 10;

/// A message of the reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A session was found. The saver answers with [`WANTED`] or another byte.
    Session(Facts),
    /// The copy's next file.
    File { len: u64, name: String },
    /// Bytes of that file.
    Bytes { at: u64, bytes: Vec<u8> },
    /// The copy is complete, but for this number of bytes that cannot be read in the process.
    Copied { missing: u64 },
    /// There is no copy of the session.
    Failed(String),
    /// The memory cannot be searched.
    Unreadable(String),
}

/// The saver's answer that it wants the copy.
pub(super) const WANTED: u8 = 1;

impl Message {
    pub(super) fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let (kind, body) = match self {
            Self::Session(facts) => (1u8, of_facts(facts)),
            Self::File { len, name } => (2, [&len.to_ne_bytes(), name.as_bytes()].concat()),
            Self::Bytes { at, bytes } => (3, [&at.to_ne_bytes(), &bytes[..]].concat()),
            Self::Copied { missing } => (4, missing.to_ne_bytes().to_vec()),
            Self::Failed(why) => (5, why.as_bytes().to_vec()),
            Self::Unreadable(why) => (6, why.as_bytes().to_vec()),
        };
        to.write_all(&[kind])?;
        to.write_all(&(body.len() as u32).to_ne_bytes())?;
        to.write_all(&body)
    }

    /// Reads a message; none at the end.
    pub(super) fn read(from: &mut impl Read) -> anyhow::Result<Option<Self>> {
        let mut kind = [0];
        if from.read(&mut kind).context("the reader of the process's memory")? == 0 {
            return Ok(None);
        }
        let mut len = [0; 4];
        from.read_exact(&mut len).context("the reader of the process's memory")?;
        let len = u32::from_ne_bytes(len) as usize;
        if len > MOST {
            bail!("a message of {len} bytes");
        }
        let mut body = vec![0; len];
        from.read_exact(&mut body).context("the reader of the process's memory")?;
        let mut body = Body(&body);
        let text = |body: Body<'_>| String::from_utf8_lossy(body.0).into_owned();
        Ok(Some(match kind[0] {
            1 => Self::Session(facts(body)?),
            2 => Self::File { len: body.long()?, name: text(body) },
            3 => Self::Bytes { at: body.long()?, bytes: body.0.to_vec() },
            4 => Self::Copied { missing: body.long()? },
            5 => Self::Failed(text(body)),
            6 => Self::Unreadable(text(body)),
            kind => bail!("a message of kind {kind}"),
        }))
    }
}

fn of_facts(facts: &Facts) -> Vec<u8> {
    let Facts {
        uuid,
        name,
        address,
        control,
        scope,
        creator,
        creator_start,
        creator_pid_namespace,
        has_told_its_end,
    } = facts;
    let long =
        [*address, *control, *creator_start, *creator_pid_namespace].map(u64::to_ne_bytes).concat();
    let short = [*scope, *creator, u32::from(*has_told_its_end)].map(u32::to_ne_bytes).concat();
    [&uuid[..], &long, &short, name.as_bytes()].concat()
}

fn facts(mut body: Body<'_>) -> anyhow::Result<Facts> {
    Ok(Facts {
        uuid: body.take()?,
        address: body.long()?,
        control: body.long()?,
        creator_start: body.long()?,
        creator_pid_namespace: body.long()?,
        scope: body.take().map(u32::from_ne_bytes)?,
        creator: body.take().map(u32::from_ne_bytes)?,
        has_told_its_end: body.take().map(u32::from_ne_bytes)? != 0,
        name: String::from_utf8_lossy(body.0).into_owned(),
    })
}

/// The rest of a body.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let (first, rest) =
            self.0.split_first_chunk::<N>().context("a message that is too short")?;
        self.0 = rest;
        Ok(*first)
    }

    fn long(&mut self) -> anyhow::Result<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

/// Sends the files of a copy as messages.
pub(super) struct Sender<W>(pub(super) W);

impl<W: Write> Sender<W> {
    fn send(&mut self, message: &Message) -> Result<(), lastwords::Error> {
        let failed =
            |source| lastwords::Error::Io { call: "write", path: "the copy".into(), source };
        message.write(&mut self.0).map_err(failed)
    }
}

impl<W: Write> CopySink for Sender<W> {
    fn create(&mut self, name: &str, len: u64) -> Result<(), lastwords::Error> {
        self.send(&Message::File { len, name: name.to_owned() })
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), lastwords::Error> {
        for (piece, index) in bytes.chunks(PIECE).zip(0..) {
            self.send(&Message::Bytes {
                at: at.saturating_add(index * PIECE as u64),
                bytes: piece.to_vec(),
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let facts = Facts {
            uuid: [7; 16],
            name: "app".into(),
            address: 1 << 40,
            control: (1 << 40) + 4096,
            scope: 2,
            creator: 77,
            creator_start: 1 << 33,
            creator_pid_namespace: 0xf000_0001,
            has_told_its_end: true,
        };
        vec![
            Message::Session(facts),
            Message::File { len: 1 << 20, name: "stream-0001".into() },
            Message::Bytes { at: 4096, bytes: vec![1, 2, 3] },
            Message::Copied { missing: 12 },
            Message::Failed("why".into()),
            Message::Unreadable("why not".into()),
        ]
    }

    #[test]
    fn messages_arrive_as_they_were() {
        let mut bytes = Vec::new();
        messages().iter().for_each(|message| message.write(&mut bytes).unwrap());
        let mut rest = &bytes[..];
        for message in messages() {
            assert_eq!(Message::read(&mut rest).unwrap(), Some(message));
        }
        assert_eq!(Message::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn a_message_that_is_cut_or_too_long_is_an_error() {
        for message in messages() {
            let mut bytes = Vec::new();
            message.write(&mut bytes).unwrap();
            for len in 1..bytes.len() {
                assert!(Message::read(&mut &bytes[..len]).is_err(), "{message:?} cut to {len}");
            }
        }
        let long = [&[3][..], &(MOST as u32 + 1).to_ne_bytes(), &vec![0; MOST + 1]].concat();
        assert!(Message::read(&mut &long[..]).is_err());
        assert!(Message::read(&mut &[9, 0, 0, 0, 0][..]).is_err());
    }

    #[test]
    fn long_writes_are_sent_in_pieces() {
        let mut sender = Sender(Vec::new());
        let bytes: Vec<u8> = (0..PIECE * 2 + 5).map(|at| at as u8).collect();
        sender.write(100, &bytes).unwrap();
        let (mut rest, mut got) = (&sender.0[..], Vec::new());
        while let Some(Message::Bytes { at, bytes }) = Message::read(&mut rest).unwrap() {
            assert_eq!(at, 100 + got.len() as u64);
            got.extend(bytes);
        }
        assert!(got == bytes);
    }
}
