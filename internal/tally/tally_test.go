package tally

import (
	"sync"
	"testing"
)

func TestTally(t *testing.T) {
	var counted Tally
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 1000 {
				counted.Count(i%4 != 0)
			}
		})
	}
	wg.Wait()
	if all, denied := counted.Counts(); all != 8000 || denied != 2000 {
		t.Errorf("%d decisions with %d denials", all, denied)
	}
	used := 0
	for i := range counted.lanes {
		if counted.lanes[i].allowed.Load() > 0 {
			used++
		}
	}
	if used < len(counted.lanes)/2 {
		t.Errorf("%d lanes are used", used)
	}
}
