//! Tables whose indices have a type of their own, so that an index cannot be used with the rows of another table.
//!
//! [`IndexedTable::push`] returns the index of the new row, so each index has a row, in its table and in all tables
//! made with one row for each of its rows. `table[index]` panics without a row, because only a bug can cause that.
//! [`IndexedTable::row`] is for indices from elsewhere, and for tables that may be left empty.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Type of the indices of a table.
pub trait TableIndex: Copy + From<u32> + Into<u32> {}

impl<I: Copy + From<u32> + Into<u32>> TableIndex for I {}

/// Defines a type of indices.
#[doc(hidden)]
#[macro_export]
macro_rules! table_index {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl From<u32> for $name {
            fn from(index: u32) -> Self {
                Self(index)
            }
        }

        impl From<$name> for u32 {
            fn from($name(index): $name) -> Self {
                index
            }
        }
    };
}
pub use table_index;

/// A list of rows with indices of type `I`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexedTable<I, T> {
    rows: Vec<T>,
    index: PhantomData<I>,
}

impl<I, T> IndexedTable<I, T> {
    /// Returns all rows.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Sets all rows to one value.
    pub fn fill(&mut self, row: T)
    where
        T: Clone,
    {
        self.rows.fill(row);
    }

    /// Iterates over all rows.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.rows.iter()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl<I: TableIndex, T> IndexedTable<I, T> {
    /// Adds a row and returns its index. Panics if there are 2^32 rows already, which take more memory than any
    /// machine has.
    pub fn push(&mut self, row: T) -> I {
        let index = index_of(self.rows.len());
        self.rows.push(row);
        index
    }

    /// Returns a row, if it exists.
    pub fn row(&self, index: I) -> Option<&T> {
        self.rows.get(position(index))
    }

    /// Iterates over all rows with their indices.
    pub fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        let rows = self.rows.iter().enumerate();
        rows.map(|(position, row)| (index_of(position), row))
    }

    /// Iterates over all rows with their indices, and allows changes to the rows.
    pub fn enumerate_mut(&mut self) -> impl DoubleEndedIterator<Item = (I, &mut T)> {
        let rows = self.rows.iter_mut().enumerate();
        rows.map(|(position, row)| (index_of(position), row))
    }

    /// Returns a table with one row for each row of this one.
    pub fn map<U>(&self, row: impl FnMut(&T) -> U) -> IndexedTable<I, U> {
        self.rows.iter().map(row).collect()
    }

    /// Frees what is reserved for more rows.
    pub fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
    }

    /// Makes room for so many rows, and not for more.
    pub fn reserve_exact(&mut self, rows: usize) {
        self.rows.reserve_exact(rows);
    }
}

/// Returns the index of the row at a position. Panics if that has more than 32 bits.
#[expect(clippy::expect_used, reason = "the rows of such a table fit into no memory")]
pub fn index_of<I: TableIndex>(position: usize) -> I {
    u32::try_from(position)
        .expect("a table has at most 2^32 rows")
        .into()
}

fn position(index: impl TableIndex) -> usize {
    let index: u32 = index.into();
    index as usize
}

impl<I: TableIndex, T> Index<I> for IndexedTable<I, T> {
    type Output = T;

    #[track_caller]
    #[expect(clippy::indexing_slicing, reason = "only a bug makes an index without a row")]
    fn index(&self, index: I) -> &T {
        &self.rows[position(index)]
    }
}

impl<I: TableIndex, T> IndexMut<I> for IndexedTable<I, T> {
    #[track_caller]
    #[expect(clippy::indexing_slicing, reason = "only a bug makes an index without a row")]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.rows[position(index)]
    }
}

impl<I, T> Default for IndexedTable<I, T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            index: PhantomData,
        }
    }
}

impl<I: TableIndex, T> FromIterator<T> for IndexedTable<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(rows: A) -> Self {
        Self::from(Vec::from_iter(rows))
    }
}

impl<I: TableIndex, T> From<Vec<T>> for IndexedTable<I, T> {
    /// Panics if there are more than 2^32 rows.
    fn from(rows: Vec<T>) -> Self {
        if let Some(last) = rows.len().checked_sub(1) {
            index_of::<I>(last);
        }
        Self {
            rows,
            index: PhantomData,
        }
    }
}

impl<I: TableIndex, T> Extend<T> for IndexedTable<I, T> {
    fn extend<A: IntoIterator<Item = T>>(&mut self, rows: A) {
        for row in rows {
            self.push(row);
        }
    }
}

impl<'a, I, T> IntoIterator for &'a IndexedTable<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut IndexedTable<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter_mut()
    }
}

impl<I, T> IntoIterator for IndexedTable<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    table_index! {
        /// Index of a letter.
        LetterIndex
    }

    #[test]
    fn pushing_returns_the_index_of_the_row() {
        let mut letters = IndexedTable::<LetterIndex, char>::default();
        let a = letters.push('a');
        letters.extend(['b']);
        let c = letters.push('c');
        assert_eq!((a, c), (LetterIndex(0), LetterIndex(2)));
        assert_eq!((letters[a], letters[c]), ('a', 'c'));
        letters[a] = 'd';
        let upper = letters.map(char::to_ascii_uppercase);
        assert_eq!(upper[a], 'D');
        assert_eq!(upper.enumerate().last(), Some((c, &'C')));
        assert_eq!(letters.row(LetterIndex(3)), None);
    }

    #[test]
    #[should_panic(expected = "the index is 1")]
    fn an_index_without_a_row_is_a_bug() {
        let letters = IndexedTable::<LetterIndex, char>::from(vec!['a']);
        let _ = letters[LetterIndex(1)];
    }
}
