//! Sparse tables of numbers for very many rows.

use std::marker::PhantomData;

use crate::collections::indexed_table::{TableIndex, index_of};

/// Number of rows in a page.
const PAGE: usize = 64;

/// A row for each index. Only pages with a row that was changed take memory.
#[derive(Clone, Debug)]
pub struct PagedTable<I, T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
    default: T,
    index: PhantomData<I>,
}

impl<I, T: Default> Default for PagedTable<I, T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            default: T::default(),
            index: PhantomData,
        }
    }
}

impl<I: TableIndex, T: Default + Copy> PagedTable<I, T> {
    /// Returns a row.
    pub fn get(&self, index: I) -> &T {
        let (page, row) = position(index);
        let page = self.pages.get(page).and_then(Option::as_deref);
        page.and_then(|page| page.get(row)).unwrap_or(&self.default)
    }

    /// Returns a row to be changed.
    pub fn get_mut(&mut self, index: I) -> &mut T {
        let (page, row) = position(index);
        if page >= self.pages.len() {
            self.pages.resize_with(page.saturating_add(1), || None);
        }
        let page = self.pages.get_mut(page);
        let page = page.map(|page| page.get_or_insert_with(|| Box::new([T::default(); PAGE])));
        // There are as many pages and rows.
        page.and_then(|page| page.get_mut(row))
            .unwrap_or(&mut self.default)
    }

    /// Returns the rows of all pages in use, by index.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(page, rows)| Some((page, rows.as_deref()?)));
        pages.flat_map(|(page, rows)| {
            let rows = rows.iter().enumerate();
            rows.map(move |(row, content)| (index_of(page.saturating_mul(PAGE).saturating_add(row)), content))
        })
    }
}

fn position(index: impl TableIndex) -> (usize, usize) {
    let index: u32 = index.into();
    (index as usize / PAGE, index as usize % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_in_use_take_memory() {
        let mut table: PagedTable<u32, u8> = PagedTable::default();
        *table.get_mut(1_000_000) = 7;
        assert_eq!(
            [0, 1_000_000, 1_000_001, u32::MAX].map(|row| *table.get(row)),
            [0, 7, 0, 0]
        );
        let used: Vec<(u32, &u8)> = table.iter().filter(|&(_, row)| *row > 0).collect();
        assert_eq!(used, [(1_000_000, &7)]);
        assert_eq!(table.iter().count(), PAGE);
    }
}
