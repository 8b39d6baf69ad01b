// Package fault names the kinds of failure that a caller can act on.
//
// An error that leaves the server (REST, page, CLI, host link) is a *Fault with a kind, a message that is safe to show
// to the caller, and the cause for the log. Any other error is an internal error: its text is logged and never shown.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is what a caller can do about a failure. Its string is the stable code of the REST API.
type Kind string

const (
	Unauthorized      Kind = "unauthorized"
	Forbidden         Kind = "forbidden"
	NotFound          Kind = "not_found"
	Invalid           Kind = "validation_failed"
	NoCapacity        Kind = "no_capacity"
	InsufficientFunds Kind = "insufficient_funds"
	QuotaExceeded     Kind = "quota_exceeded"
	Conflict          Kind = "conflict"
	IdemMismatch      Kind = "idempotency_mismatch"
	RateLimited       Kind = "rate_limited"
	TooLarge          Kind = "too_large"
	Unavailable       Kind = "unavailable"
	Internal          Kind = "internal"
)

// faces maps each kind to its HTTP status, its exit code and its title.
var faces = map[Kind]struct {
	http, exit int
	title      string
}{
	Unauthorized:      {401, 1, "Sign in or send a valid token"},
	Forbidden:         {403, 1, "Not allowed"},
	NotFound:          {404, 3, "Not found"},
	Invalid:           {422, 2, "The request is not valid"},
	NoCapacity:        {409, 4, "Nothing fits right now"},
	InsufficientFunds: {402, 5, "Not enough credit"},
	QuotaExceeded:     {403, 1, "A limit of your organisation is reached"},
	Conflict:          {409, 1, "Not possible in the present state"},
	IdemMismatch:      {422, 2, "The idempotency key was used for another request"},
	RateLimited:       {429, 1, "Too many requests"},
	TooLarge:          {413, 2, "The request is too large"},
	Unavailable:       {503, 1, "Not available at the moment"},
	Internal:          {500, 1, "Something went wrong on our side"},
}

// HTTPStatus returns the kind's status code; unknown kinds are 500.
func (k Kind) HTTPStatus() int { return k.face().http }

// ExitCode returns the CLI's exit code for the kind (rest-api.md: 1 failed, 2 usage, 3 not found, 4 no capacity, 5 no
// funds).
func (k Kind) ExitCode() int { return k.face().exit }

// Title returns a short sentence for the kind.
func (k Kind) Title() string { return k.face().title }

func (k Kind) face() struct {
	http, exit int
	title      string
} {
	if f, ok := faces[k]; ok {
		return f
	}
	return faces[Internal]
}

// Field is one fault in the input: its location and a message.
type Field struct {
	Location string `json:"location"` // JSON path or query parameter: "nodes", "env.PATH", "query.q"
	Message  string `json:"message"`
}

// Fault is a failure a caller can act on.
type Fault struct {
	Kind       Kind
	Message    string // safe to show
	Fields     []Field
	Extra      map[string]any // further members of the problem document, e.g. "explain"; safe to show
	RetryAfter time.Duration  // RateLimited, Unavailable: when to retry; 0 = unspecified
	cause      error
}

func (f *Fault) Error() string {
	s := string(f.Kind) + ": " + f.Message
	if f.cause != nil {
		s += ": " + f.cause.Error()
	}
	return s
}

func (f *Fault) Unwrap() error { return f.cause }

// New returns a fault whose message the caller may see.
func New(k Kind, format string, args ...any) *Fault {
	return &Fault{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause that only the log sees.
func Wrap(cause error, k Kind, format string, args ...any) *Fault {
	f := New(k, format, args...)
	f.cause = cause
	return f
}

// InvalidField returns the fault of one bad field.
func InvalidField(location, format string, args ...any) *Fault {
	m := fmt.Sprintf(format, args...)
	return &Fault{Kind: Invalid, Message: location + ": " + m, Fields: []Field{{location, m}}}
}

// Fields collects the faults in an input. The zero value is ready to use.
type Fields []Field

// Add adds the fault of one field.
func (f *Fields) Add(location, format string, args ...any) {
	*f = append(*f, Field{location, fmt.Sprintf(format, args...)})
}

// Err returns nil if no fault was added, else one Invalid fault that lists all of them.
func (f Fields) Err() error {
	if len(f) == 0 {
		return nil
	}
	m := f[0].Location + ": " + f[0].Message
	if len(f) > 1 {
		m = fmt.Sprintf("%s (and %d more)", m, len(f)-1)
	}
	return &Fault{Kind: Invalid, Message: m, Fields: f}
}

// KindOf returns the kind of the first Fault in err's chain, Internal if there is none, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if f := From(err); f != nil {
		return f.Kind
	}
	return Internal
}

// From returns the first Fault in err's chain, or nil.
func From(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// Is reports whether err carries a fault of kind k.
func Is(err error, k Kind) bool { f := From(err); return f != nil && f.Kind == k }
