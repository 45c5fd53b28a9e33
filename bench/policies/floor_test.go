package policies_test

// floor makes two look-ups in Go maps, by action and by bank, and reads a bit that holds the
// decision for the pair. It knows only the actions and banks of the queries.
type floor struct {
	actions, banks map[string]uint
	decided        []uint64 // a bit for each pair
}

func newFloor(w *workload) (engine, error) {
	f := &floor{actions: map[string]uint{}, banks: map[string]uint{}}
	for _, q := range fresh(w.queries) {
		number(f.actions, q.action)
		number(f.banks, q.bank)
	}
	f.decided = make([]uint64, len(f.actions)*len(f.banks)/64+1)
	for i, q := range w.queries {
		if w.want[i] == allowed && !f.Decide(q.action, q.bank) {
			f.flip(q)
		}
	}
	return f, nil
}

// number numbers the names in order of appearance.
func number(names map[string]uint, name string) {
	if _, ok := names[name]; !ok {
		names[name] = uint(len(names))
	}
}

func (f *floor) Decide(action, bank string) bool {
	at := f.actions[action]*uint(len(f.banks)) + f.banks[bank]
	return f.decided[at/64]>>(at%64)&1 == 1
}

func (f *floor) flip(q query) {
	at := f.actions[q.action]*uint(len(f.banks)) + f.banks[q.bank]
	f.decided[at/64] ^= 1 << (at % 64)
}
