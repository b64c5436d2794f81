//! Writes trace.dat files (`trace-cmd.dat.v7`), whatever their numbers claim.

/// Writes a file of version 7 that has an option for each buffer, with sub-buffers of so many bytes
/// and these places of CPUs. `is_packed`: the data is flagged as compressed.
pub fn version_7(
    algorithm: &str,
    page: u32,
    buffers: &[Vec<(u64, u64)>],
    is_packed: bool,
    body: &[u8],
) -> Vec<u8> {
    let mut file =
        [b"\x17\x08\x44tracing7\0\0\x08", &page.to_le_bytes()[..], algorithm.as_bytes(), b"\0\0"]
            .concat();
    let first = file.len() as u64 + 8;
    let behind =
        first + 16 + buffers.iter().map(|places| 34 + 20 * places.len() as u64).sum::<u64>() + 14;
    file.extend(first.to_le_bytes());
    let mut options = Vec::new();
    for places in buffers {
        let mut data = [&behind.to_le_bytes()[..], b"extra\0local\0", &page.to_le_bytes()].concat();
        data.extend((places.len() as u32).to_le_bytes());
        for (cpu, (offset, size)) in places.iter().enumerate() {
            data.extend(
                [&(cpu as u32).to_le_bytes()[..], &offset.to_le_bytes(), &size.to_le_bytes()]
                    .concat(),
            );
        }
        options
            .extend([&3u16.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), &data].concat());
    }
    options.extend([&0u16.to_le_bytes()[..], &8u32.to_le_bytes(), &[0; 8]].concat());
    file.extend([&[0; 8][..], &(options.len() as u64).to_le_bytes(), &options].concat());
    assert_eq!(file.len() as u64, behind);
    file.extend([&3u16.to_le_bytes()[..], &u16::from(is_packed).to_le_bytes(), &[0; 12]].concat());
    file.extend(body);
    file
}
