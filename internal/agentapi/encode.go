package agentapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxMessage is the largest message that the link carries, in bytes, unless an external NATS allows less.
const MaxMessage = 1 << 20

// Encode encodes a message. Unlike json.Marshal it leaves the characters of HTML as they are: escaped, each would take
// six bytes.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// SizeOf returns how many bytes Encode makes of v.
func SizeOf(v any) int {
	b, err := Encode(v)
	if err != nil { // v is none of this package's messages
		return MaxMessage
	}
	return len(b)
}

// Clip returns s with CleanText applied, cut to at most n bytes at the boundary of a character.
func Clip(s string, n int) string {
	s = CleanText(s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// unescaped reports whether JSON represents every character of s as itself, in one byte.
func unescaped(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

// maxEndpoints limits the addresses that a rank announces to its peers, and maxEndpointBytes what they take in a peer's
// desired state: a gang of the greatest size must fit.
const (
	maxEndpoints     = 8
	maxEndpointBytes = 208
)

// PeerBytes is the most that one peer takes in a desired state, in bytes.
const PeerBytes = 128 + maxEndpointBytes

// PeerEndpoints returns those of a host's addresses, best first, that its peers get.
func PeerEndpoints(in []string) []string {
	out, size := []string{}, 0
	for _, e := range in {
		if n := len(e) + len(`"",`); e != "" && unescaped(e) && len(out) < maxEndpoints && size+n <= maxEndpointBytes {
			out, size = append(out, e), size+n
		}
	}
	return out
}

// PeerKey reports whether a text may be given to peers as a key.
func PeerKey(s string) bool { return len(s) <= 64 && unescaped(s) }

// fit returns as many of the first items as fit into limit bytes.
func fit[T any](items []T, limit int) []T {
	for i := range items {
		if limit -= SizeOf(items[i]) + len(","); limit < 0 {
			return slices.Clip(items[:i])
		}
	}
	return items
}

// The most that leases take in a desired state, in bytes of Encode. A host has at most 16 GPUs, in at most 7 slices
// each, so that with all of them rented a message still has 128 KiB for everything else.
const (
	SliceBytes = 8 << 10        // of a lease of a slice
	GPUBytes   = 7 * SliceBytes // of a lease of whole GPUs, for each
	// MaxState is the largest desired state, in bytes, of a link that carries MaxMessage.
	MaxState = MaxMessage - otherBytes

	otherBytes = 96 << 10 // acknowledgements, extensions, kept logs
)

// StateLimit returns the largest desired state that fits into a reply, in bytes, on a link that carries messages of at
// most the given size.
func StateLimit(message int64) int { return int(min(message, MaxMessage)) - otherBytes }
