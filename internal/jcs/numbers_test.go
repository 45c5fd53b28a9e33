package jcs_test

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
)

func TestNumbers(t *testing.T) {
	zeros := strings.Repeat("0", 200_000)
	for _, c := range []struct{ in, want string }{
		{"0", "0"}, {"-0", "0"}, {"-0.0", "0"}, {"0e99999999999999999999999", "0"}, {"0.000E-5", "0"},
		{"1.0", "1"}, {"-1.50", "-1.5"}, {"4.50", "4.5"}, {"10", "10"}, {"100e-1", "10"}, {"1E2", "100"},
		{"1E30", "1e+30"}, {"2e-3", "0.002"}, {"0.1", "0.1"}, {"12.5", "12.5"}, {"0.000001", "0.000001"},
		{"0.0000001", "1e-7"}, {"0.00000012", "1.2e-7"}, {"1e-27", "1e-27"}, {"1e20", "100000000000000000000"},
		{"1e21", "1e+21"}, {"1.5e21", "1.5e+21"}, {"123456789012345680000", "123456789012345680000"},
		{"1234567890123456800000", "1.2345678901234568e+21"}, {"9007199254740992", "9007199254740992"},
		{"5e-324", "5e-324"}, {"50e-325", "5e-324"}, {"1.7976931348623157E308", "1.7976931348623157e+308"},
		// Long literals of short values.
		{"0." + zeros + "1e200001", "1"}, {"1" + zeros + "e-200000", "1"}, {"1." + zeros, "1"},
	} {
		is.New(t).Equal(canonical(t, c.in), c.want)
	}
}

func TestNumbersBeyondADoubleStand(t *testing.T) {
	for _, in := range []string{
		"9007199254740993", "-9007199254740993", "333333333.33333329", "0.1000000000000000055511151231257827",
		"1e400", "-1E+400", "1e-400", "4e-324", "1.7976931348623159e308", "1e1000000000", "1e-1000000000",
		"1e99999999999999999999999", "1e-99999999999999999999999", "123456789012345678901234567890", "0.10000000000000000001",
		"1e18446744073709551617", "1e-18446744073709551617", "18446744073709551615", "1" + strings.Repeat("0", 500), "9007199254740993.0e0",
	} {
		is.New(t).Equal(canonical(t, in), in)
	}
}

// encoding/json writes doubles as ECMAScript does, except for the sign of zero.
func TestDoublesAsECMAScript(t *testing.T) {
	r := rand.New(rand.NewPCG(8785, 0))
	for range 50_000 {
		f := math.Float64frombits(r.Uint64())
		if r.IntN(2) == 0 {
			f = (r.Float64() - 0.5) * math.Pow(10, float64(r.IntN(50)-25))
		}
		want, err := json.Marshal(f)
		if err != nil || f == 0 {
			continue // not a JSON number
		}
		is.New(t).Equal(canonical(t, strconv.FormatFloat(f, 'E', -1, 64)), string(want))
	}
}

// FuzzNumbers compares the canonical texts of two numbers with exact arithmetic.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1e2", "100", "0.1", "1E-7", "9007199254740993", "9007199254740992", "1e400", "10e399", "-1.50"} {
		f.Add(s, "1e2")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := exact(a), exact(b)
		if x == nil || y == nil {
			t.Skip()
		}
		ca, cb := canonical(t, a), canonical(t, b)
		expect.Holds(t, ca != cb || x.Cmp(y) == 0, a, b, ca)
		if c := exact(ca); c == nil || c.Cmp(x) != 0 {
			t.Fatalf("%s gives %s, another value", a, ca)
		}
		if near, _ := strconv.ParseFloat(a, 64); ca != a && exact(shortest(near)).Cmp(x) != 0 {
			t.Fatalf("%s does not survive as a double, but became %s", a, ca)
		}
		expect.Holds(t, x.Cmp(y) != 0 || ca == cb || ca == a && cb == b, a, b, ca)
	})
}

func shortest(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// exact returns the value of a JSON number, or nil when its exponent is too large to compute with.
func exact(lit string) *big.Rat {
	_, e, _ := strings.Cut(strings.ToLower(lit), "e")
	if len(e) > 4 || len(lit) > 100 || !json.Valid([]byte(lit)) || !strings.Contains("-0123456789", lit[:1]) {
		return nil
	}
	r, _ := new(big.Rat).SetString(lit)
	return r
}
