package base

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
)

// Clock formats the clock of a GPU's processors; a dash while it idles or if it is not known.
func Clock(v *client.GPUSpeed) string {
	if v == nil || v.SMMHz == nil {
		return OrDash("")
	}
	return fmt.Sprintf("%d MHz", *v.SMMHz)
}

// Limits lists what holds a GPU's clocks down; a dash if nothing does.
func Limits(v *client.GPUSpeed) string {
	if v == nil {
		return OrDash("")
	}
	return OrDash(strings.ReplaceAll(strings.Join(v.Limits, ", "), "_", " "))
}

// Whole formats a number with its unit; a dash for nil.
func Whole(n *int, unit string) string {
	if n == nil {
		return OrDash("")
	}
	return fmt.Sprintf("%d %s", *n, unit)
}
