package base

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
)

// Durable formats up to when a volume is durable.
func Durable(v client.Volume) string {
	if v.DurableTo == nil {
		return "no snapshot"
	}
	return When(*v.DurableTo)
}

// Pending formats what of a volume is not durable yet; "" if nothing is.
func Pending(v client.Volume) string {
	if v.PendingBytes == 0 {
		return ""
	}
	pending := Bytes(v.PendingBytes)
	if v.ETASeconds > 0 {
		pending += fmt.Sprintf(", durable in about %s", time.Duration(v.ETASeconds)*time.Second)
	}
	return pending
}
