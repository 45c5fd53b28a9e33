package wire_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/wire"
)

// Times are written as package time writes them.
func TestTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	times := []time.Time{{}, time.UnixMicro(0), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(12345, 1, 2, 3, 4, 5, 6000, time.UTC), time.Date(-1, 1, 2, 3, 4, 5, 6000, time.UTC)}
	for range 10_000 {
		times = append(times, time.Unix(random.Int64N(300_000_000_000)-60_000_000_000, random.Int64N(1_000_000_000)).In(time.FixedZone("", random.IntN(86_400)-43_200)))
	}
	for _, at := range times {
		text, want := string(wire.Template{InstalledAt: at}.Append(nil)), `"`+at.UTC().Format(wire.TimeFormat)+`"`
		if !strings.Contains(text, `"installed_at":`+want) {
			t.Fatalf("%s does not contain %s", text, want)
		}
		if alone, err := (wire.Time{Time: at}).MarshalJSON(); err != nil || string(alone) != want {
			t.Fatalf("%s is not %s: %v", alone, want, err)
		}
	}
}
