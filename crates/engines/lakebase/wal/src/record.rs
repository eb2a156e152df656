//! One record: its header, the blocks that it refers to, and its main data (`DecodeXLogRecord` of Postgres).

use crate::error::RecordError;
use crate::image::{Compression, Image, PAGE_BYTES};
use crate::rmgr::Rmgr;
use bytes::Bytes;
use thalweg_pg::PgLsn;

/// Bytes of a record's header (`SizeOfXLogRecord`).
pub(crate) const HEADER_BYTES: usize = 24;
/// Where its checksum stands.
pub(crate) const CHECKSUM_AT: usize = 20;
/// The largest number of a block reference (`XLR_MAX_BLOCK_ID`).
const BLOCK_ID_MAX: u8 = 32;

const ID_DATA_SHORT: u8 = 255;
const ID_DATA_LONG: u8 = 254;
const ID_ORIGIN: u8 = 253;
const ID_TOPLEVEL_XID: u8 = 252;

const FORK_MASK: u8 = 0x0f;
const HAS_IMAGE: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const WILL_INIT: u8 = 0x40;
const SAME_RELATION: u8 = 0x80;

const IMAGE_HAS_HOLE: u8 = 0x01;
const IMAGE_APPLY: u8 = 0x02;
const IMAGE_PGLZ: u8 = 0x04;
const IMAGE_LZ4: u8 = 0x08;
const IMAGE_ZSTD: u8 = 0x10;

/// The fields of a record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of the record, its header included, without the headers of pages that it crosses.
    pub total_bytes: u32,
    /// The transaction that wrote it; 0 for none.
    pub xid: u32,
    /// The position of the record before it.
    pub previous: PgLsn,
    /// Flags: the high four bits are the resource manager's.
    pub info: u8,
    /// The resource manager that replays it.
    pub rmgr: Rmgr,
    /// The CRC32C of the bytes behind the header, and then of the header before the checksum.
    pub checksum: u32,
}

impl RecordHeader {
    /// The header in these bytes. They must not be fewer than it has.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            total_bytes: u32_at(0),
            xid: u32_at(4),
            previous: PgLsn(u64::from(u32_at(12)) << 32 | u64::from(u32_at(8))),
            info: bytes[16],
            rmgr: Rmgr(bytes[17]),
            checksum: u32_at(CHECKSUM_AT),
        }
    }

    /// What the resource manager tells its records apart by: the high four bits of [`Self::info`].
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.info & 0xf0
    }
}

/// The files of a relation (`RelFileLocator`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation {
    /// The tablespace.
    pub tablespace: u32,
    /// The database; 0 for one that all databases share.
    pub database: u32,
    /// The number of its files.
    pub number: u32,
}

/// A fork of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fork {
    /// Its content.
    Main,
    /// Free space, which is not logged.
    FreeSpace,
    /// Which pages everybody sees.
    Visibility,
    /// What an unlogged relation is after a crash.
    Init,
}

impl Fork {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Main, Self::FreeSpace, Self::Visibility, Self::Init];

    /// The fork with this number (`ForkNumber`).
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its number (`ForkNumber`).
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// What names of its files have behind the relation's number (`forkNames`).
    #[must_use]
    pub fn suffix(self) -> &'static str {
        ["", "_fsm", "_vm", "_init"][usize::from(self.number())]
    }
}

/// A block that a record refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// Its number among those of the record.
    pub id: u8,
    /// The relation.
    pub relation: Relation,
    /// The fork.
    pub fork: Fork,
    /// The number of the block in its fork.
    pub block: u32,
    /// Replay begins with an empty page, whatever stands there.
    pub will_init: bool,
    /// The page's image.
    pub image: Option<Image>,
    /// What the resource manager has for this block.
    pub data: Bytes,
}

/// A decoded record. Its parts share the record's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its header.
    pub header: RecordHeader,
    /// Its blocks, in order of their ids.
    pub blocks: Vec<BlockRef>,
    /// The replication origin that the change came from; 0 for none.
    pub origin: u16,
    /// The transaction that the writing one is a part of, if the record says it.
    pub toplevel_xid: Option<u32>,
    /// What the resource manager has beside blocks.
    pub main_data: Bytes,
}

/// Takes parts off the front of a record's bytes.
struct Parts {
    rest: Bytes,
}

impl Parts {
    fn take(&mut self, len: usize, what: &'static str) -> Result<Bytes, RecordError> {
        if len > self.rest.len() {
            return Err(RecordError::Truncated(what));
        }
        Ok(self.rest.split_to(len))
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RecordError> {
        let taken = self.take(N, what)?;
        taken[..].try_into().map_err(|_| RecordError::Truncated(what))
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, RecordError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, RecordError> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, RecordError> {
        self.array(what).map(u32::from_le_bytes)
    }
}

/// The header of a block reference. Its image and data stand behind all headers.
struct BlockHeader {
    block: BlockRef,
    image_bytes: usize,
    data_bytes: usize,
}

fn image_header(parts: &mut Parts) -> Result<(Image, usize), RecordError> {
    const WHAT: &str = "the header of an image";
    let (len, hole_offset, flags) = (parts.u16(WHAT)?, parts.u16(WHAT)?, parts.u8(WHAT)?);
    let compression = match flags & (IMAGE_PGLZ | IMAGE_LZ4 | IMAGE_ZSTD) {
        0 => Compression::None,
        IMAGE_PGLZ => Compression::Pglz,
        IMAGE_LZ4 => Compression::Lz4,
        IMAGE_ZSTD => Compression::Zstd,
        _ => return Err(RecordError::Invalid("an image is compressed in two ways")),
    };
    let (page_bytes, has_hole) = (PAGE_BYTES as u16, flags & IMAGE_HAS_HOLE != 0);
    let hole_len = match (compression, has_hole) {
        (Compression::None, true) => page_bytes.saturating_sub(len),
        (_, true) => parts.u16(WHAT)?,
        (_, false) => 0,
    };
    let is_sound = if has_hole {
        hole_offset > 0
            && hole_len > 0
            && len < page_bytes
            && u32::from(hole_offset) + u32::from(hole_len) <= PAGE_BYTES as u32
    } else {
        hole_offset == 0 && (compression != Compression::None || len == page_bytes)
    };
    if !is_sound || (compression != Compression::None && len >= page_bytes) {
        return Err(RecordError::Invalid("the hole of an image contradicts its length"));
    }
    let stored = Bytes::new();
    let image = Image { is_applied: flags & IMAGE_APPLY != 0, hole_offset, hole_len, compression, stored };
    Ok((image, usize::from(len)))
}

fn block_header(parts: &mut Parts, id: u8, before: Option<Relation>) -> Result<BlockHeader, RecordError> {
    const WHAT: &str = "the header of a block";
    let (flags, data_bytes) = (parts.u8(WHAT)?, usize::from(parts.u16(WHAT)?));
    let fork =
        Fork::of_number(flags & FORK_MASK).ok_or(RecordError::Invalid("a block is of a fork that does not exist"))?;
    if (flags & HAS_DATA != 0) != (data_bytes > 0) {
        return Err(RecordError::Invalid("a block says that it has data, and has none, or the other way round"));
    }
    let (image, image_bytes) = match flags & HAS_IMAGE {
        0 => (None, 0),
        _ => image_header(parts).map(|(image, len)| (Some(image), len))?,
    };
    let relation = match flags & SAME_RELATION {
        0 => Relation { tablespace: parts.u32(WHAT)?, database: parts.u32(WHAT)?, number: parts.u32(WHAT)? },
        _ => before
            .ok_or(RecordError::Invalid("a block is of the same relation as the one before, and none is before it"))?,
    };
    let (block, will_init) = (parts.u32(WHAT)?, flags & WILL_INIT != 0);
    let block = BlockRef { id, relation, fork, block, will_init, image, data: Bytes::new() };
    Ok(BlockHeader { block, image_bytes, data_bytes })
}

impl Record {
    /// Decodes the bytes of one record, as [`crate::Framed`] has them. Its checksum is the framer's matter.
    pub fn decode(bytes: &Bytes) -> Result<Self, RecordError> {
        let mut parts = Parts { rest: bytes.clone() };
        let header = RecordHeader::decode(&parts.array("its header")?);
        if header.total_bytes as usize != bytes.len() {
            return Err(RecordError::Invalid("its length is another one than its header says"));
        }
        let (mut headers, mut behind): (Vec<BlockHeader>, usize) = (Vec::new(), 0);
        let (mut main_bytes, mut origin, mut toplevel_xid) = (None, 0, None);
        while parts.rest.len() > behind {
            let add = match parts.u8("a part's number")? {
                ID_DATA_SHORT => {
                    let len = usize::from(parts.u8("the length of main data")?);
                    main_bytes = Some(len);
                    len
                }
                ID_DATA_LONG => {
                    let len = parts.u32("the length of main data")? as usize;
                    main_bytes = Some(len);
                    len
                }
                ID_ORIGIN => {
                    origin = parts.u16("its origin")?;
                    continue;
                }
                ID_TOPLEVEL_XID => {
                    toplevel_xid = Some(parts.u32("its outer transaction")?);
                    continue;
                }
                id @ 0..=BLOCK_ID_MAX => {
                    let before = headers.last().map(|header| (header.block.id, header.block.relation));
                    if before.is_some_and(|(before, _)| before >= id) {
                        return Err(RecordError::Invalid("its blocks are not in order"));
                    }
                    let header = block_header(&mut parts, id, before.map(|(_, relation)| relation))?;
                    let add = header.image_bytes + header.data_bytes;
                    headers.push(header);
                    add
                }
                _ => return Err(RecordError::Invalid("it has a part of an unknown number")),
            };
            behind = behind.checked_add(add).ok_or(RecordError::Invalid("its parts are longer than memory"))?;
            // Main data is last.
            if main_bytes.is_some() {
                break;
            }
        }
        if parts.rest.len() != behind {
            return Err(RecordError::Invalid("its parts have other lengths than the record"));
        }
        let mut blocks = Vec::with_capacity(headers.len());
        for BlockHeader { mut block, image_bytes, data_bytes } in headers {
            if let Some(image) = &mut block.image {
                image.stored = parts.take(image_bytes, "an image")?;
            }
            block.data = parts.take(data_bytes, "a block's data")?;
            blocks.push(block);
        }
        let main_data = parts.take(main_bytes.unwrap_or(0), "main data")?;
        Ok(Self { header, blocks, origin, toplevel_xid, main_data })
    }

    /// The block with this id.
    #[must_use]
    pub fn block(&self, id: u8) -> Option<&BlockRef> {
        self.blocks.iter().find(|block| block.id == id)
    }
}
