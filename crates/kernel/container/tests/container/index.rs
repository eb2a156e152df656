//! The index of a container of one partition is taken in one piece, and says what lookups say.

use super::model::model;
use super::*;
use proptest::prelude::*;
use thalweg_container::{Block, Index, Need, PAGE_BYTES};

const OPTIONS: Options =
    Options { block_bytes: 60, compression: Compression::None, has_content: true, has_one_partition: true };

fn with_content(storage: &Arc<dyn Storage>, model: &Model, content: &[u8]) -> Object {
    let mut out = builder(storage, 1, OPTIONS);
    out.content(content).unwrap();
    for (key, (kind, value)) in model {
        out.push(&Entry { key, kind: *kind, value }).unwrap();
    }
    out.finish().unwrap().object
}

/// Gives it the tail that it wants, from `len` bytes on; how many tails that took.
fn decode(bytes: &Bytes, len: usize) -> Result<(Index, usize), ContainerError> {
    let mut tail = bytes.slice(bytes.len() - len..);
    for tails in 1.. {
        match Index::decode::<Pairs>(ObjectId(1), bytes.len() as u64, &tail)? {
            Need::Done(index) => return Ok((index, tails)),
            Need::Range(range) => {
                assert!(range.end == bytes.len() as u64 && range.end - range.start > tail.len() as u64, "it is longer");
                tail = bytes.slice(range.start as usize..);
            }
        }
    }
    unreachable!()
}

fn find(bytes: &Bytes, index: &Index, key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if !index.may_hold::<Pairs>(key) {
        return None;
    }
    let number = index.block_of(key);
    let range = index.block_range(number);
    let framed = bytes.slice(range.start as usize..range.end as usize);
    let mut cursor =
        (number < index.blocks()).then(|| Block::open(ObjectId(1), range.start, &framed).unwrap().cursor())?;
    assert!(cursor.seek(key).unwrap());
    Some((cursor.entry().key.to_vec(), cursor.entry().value.to_vec()))
}

proptest! {
    #[test]
    fn it_leads_to_what_the_model_has(model in model(), content in 0..40_000usize, tail: prop::sample::Index) {
        let storage = memory();
        let content: Vec<u8> = (0..content).map(|n| (n / 3) as u8).collect();
        let object = with_content(&storage, &model, &content);
        let bytes = all_bytes(&storage, object);
        let (index, tails) = decode(&bytes, tail.index(bytes.len() + 1)).unwrap();
        prop_assert!(tails <= 4);
        prop_assert_eq!(index.stats().entries(), model.len() as u64);
        for key in model.keys().cloned().chain([vec![1, 2], vec![3; 9]]) {
            let expected = model.range(key.clone()..).next().map(|(key, (_, value))| (key.clone(), value.clone()));
            let found = find(&bytes, &index, &key);
            prop_assert!(found == expected || (found.is_none() && !model.contains_key(&key)));
        }
        prop_assert_eq!(&bytes[index.content().start as usize..index.content().end as usize], &content[..]);
        let walked = (0..index.blocks()).fold(0, |at, n| {
            assert!(at == 0 || at == index.block_range(n).start);
            index.block_range(n).end
        });
        prop_assert!(model.is_empty() || walked == index.range().start);
    }
}

#[test]
fn it_is_taken_in_one_piece_where_its_length_is_known() {
    let storage = memory();
    let model: Model = (0..20_000u32).map(|n| (n.to_be_bytes().to_vec(), (Kind::Value, vec![7; 30]))).collect();
    let object = with_content(&storage, &model, &[1; 100]);
    let bytes = all_bytes(&storage, object);
    let (index, tails) = decode(&bytes, 0).unwrap();
    assert_eq!(tails, 4, "the footer, the root, the rest");
    let (_, tails) = decode(&bytes, (index.range().end - index.range().start) as usize).unwrap();
    assert_eq!(tails, 1);
    let mut split = builder(&storage, 2, Options { has_one_partition: false, ..OPTIONS });
    model.iter().for_each(|(key, (kind, value))| split.push(&Entry { key, kind: *kind, value }).unwrap());
    let object = split.finish().unwrap().object;
    let refused = Index::decode::<Pairs>(ObjectId(2), object.bytes, &all_bytes(&storage, object));
    assert!(refused.unwrap_err().to_string().contains("several partitions"));
}

#[test]
fn every_flipped_byte_of_it_and_of_what_it_names_is_noticed() {
    let storage = memory();
    let model: Model = (0..40u8).map(|n| (vec![n / 8, n], (Kind::Value, vec![n; 9]))).collect();
    let content: Vec<u8> = (0..2 * PAGE_BYTES + 9).map(|n| (n / 5) as u8).collect();
    let object = with_content(&storage, &model, &content);
    let bytes = all_bytes(&storage, object);
    let (index, _) = decode(&bytes, bytes.len()).unwrap();
    assert_eq!(index.pages(&(28 + PAGE_BYTES - 1..28 + PAGE_BYTES + 1)), 28..28 + 2 * PAGE_BYTES);
    assert_eq!(
        index.pages(&(28 + 2 * PAGE_BYTES..28 + 2 * PAGE_BYTES + 1)),
        28 + 2 * PAGE_BYTES..28 + 2 * PAGE_BYTES + 9
    );
    for at in (0..bytes.len()).filter(|at| *at as u64 >= index.content().end - 9 || at % 97 == 0 || *at < 28) {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        let (damaged, place) = (Bytes::from(damaged), at as u64);
        if place >= index.range().start {
            assert!(decode(&damaged, damaged.len()).is_err(), "byte {at}");
        } else if place < Index::header().end {
            assert!(index.check_header(&damaged[..28]).is_err(), "byte {at}");
        } else if index.content().contains(&place) {
            let pages = index.pages(&(place..place + 1));
            let told = index.check_pages(pages.start, &damaged[pages.start as usize..pages.end as usize]).unwrap_err();
            assert!(matches!(told, ContainerError::Corrupt { at, .. } if at == pages.start), "byte {at}: {told}");
        } else {
            let range = (0..index.blocks()).map(|n| index.block_range(n)).find(|range| range.contains(&place)).unwrap();
            let framed = damaged.slice(range.start as usize..range.end as usize);
            assert!(Block::open(ObjectId(1), range.start, &framed).is_err(), "byte {at}");
        }
    }
    let whole = index.content();
    index.check_pages(whole.start, &bytes[whole.start as usize..whole.end as usize]).unwrap();
    assert!(index.check_pages(whole.end, &[0]).is_err(), "a page behind the last one");
}
