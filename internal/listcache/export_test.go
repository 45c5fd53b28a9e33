package listcache

func (l *List[T]) Pages() int { return len(l.pages) }

// PagesApartFrom returns how many pages are not those of another list.
func (l *List[T]) PagesApartFrom(other *List[T]) (n int) {
	shared := map[*entry[T]]bool{}
	for _, page := range other.pages {
		shared[&page[0]] = true
	}
	for _, page := range l.pages {
		if !shared[&page[0]] {
			n++
		}
	}
	return n
}
