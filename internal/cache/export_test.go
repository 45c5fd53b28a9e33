package cache

// Drain leaves no room, so that all caches drop what they hold.
func (b *Budget) Drain() {
	b.most = -1
	b.Fit()
}
