package limits_test

import (
	"fmt"

	"github.com/extsvc/svc/limits"
)

// A form of the host's refuses what svc would refuse.
func Example() {
	fmt.Printf(`<input name="id" maxlength="%d">`+"\n", limits.IDLength)
	// Output: <input name="id" maxlength="128">
}
