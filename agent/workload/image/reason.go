package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/musterhq/muster/internal/agentapi"
)

// Error says why retrying cannot pull an image. Any other error of a pull may be temporary.
type Error struct {
	Reason string // agentapi.ReasonImage… or ReasonNoDisk
	Detail string // for the renter; contains no secret and no address of the host
	cause  error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Reason, e.Detail, e.cause)
	}
	return e.Reason + ": " + e.Detail
}

func (e *Error) Unwrap() error { return e.cause }

func refused(format string, args ...any) *Error {
	return &Error{Reason: agentapi.ReasonImageRefused, Detail: fmt.Sprintf(format, args...)}
}

func tooBig(format string, args ...any) *Error {
	return &Error{Reason: agentapi.ReasonImageTooBig, Detail: fmt.Sprintf(format, args...)}
}

func wrongArch(format string, args ...any) *Error {
	return &Error{Reason: agentapi.ReasonImageWrongArch, Detail: fmt.Sprintf(format, args...)}
}

// gb formats a size for people, in the gigabytes of disk_gb.
func gb(n int64) string { return fmt.Sprintf("%.2f GB", float64(n)/1e9) }

// Away says why a registry gave no useful response. It may be temporary: the caller decides how often to retry.
type Away struct {
	Registry string // host:port
	Why      string // for the renter
	cause    error
}

func (a *Away) Error() string { return fmt.Sprintf("registry %s: %s: %v", a.Registry, a.Why, a.cause) }

func (a *Away) Unwrap() error { return a.cause }

// Sentence returns a sentence for the renter.
func (a *Away) Sentence() string { return fmt.Sprintf("the registry %s %s", a.Registry, a.Why) }

// away describes a registry that cannot be reached or has failed itself; it returns "" for any other error. The text of
// the cause goes only to the log, because it may contain addresses of the host's network.
func away(err error) string {
	var answer *transport.Error
	var dns *net.DNSError
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &answer) && answer.StatusCode == http.StatusTooManyRequests:
		return "limits how often it is asked from here"
	case errors.As(err, &answer) && answer.StatusCode >= 500:
		return fmt.Sprintf("answers with an error of its own (%d)", answer.StatusCode)
	case errors.As(err, &cert):
		return "shows a certificate that is not trusted"
	case errors.As(err, &record):
		return "does not speak TLS"
	case errors.As(err, &dns):
		return "is not found by its name just now"
	case errors.As(err, &op) && op.Timeout():
		return "does not answer in time"
	case errors.As(err, &op):
		return "cannot be connected to"
	}
	return ""
}

// classify turns a failure that the registry, the guard or the daemon reports into an Error if it is final.
func classify(err error) error {
	var known *Error
	var answer *transport.Error
	var dns *net.DNSError
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.Contains(err.Error(), "invalid realm in www-authenticate"), // the client library's own check
		strings.Contains(err.Error(), "SSRF protection: redirect from"):
		return &Error{agentapi.ReasonImageRefused, errNotPublic.Error(), err}
	case errors.Is(err, errNotPublic), errors.Is(err, errPlain):
		return &Error{agentapi.ReasonImageRefused, innermost(err), err}
	case errors.As(err, &answer):
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return &Error{agentapi.ReasonImageUnauthorized, "the registry does not let us: the image does not exist there, " +
				"or it is private and needs other credentials", err}
		case http.StatusNotFound:
			return &Error{agentapi.ReasonImageNotFound, "the registry has no such image", err}
		}
	case errors.As(err, &dns) && dns.IsNotFound:
		return &Error{agentapi.ReasonImageNotFound, "there is no registry of that name", err}
	case strings.Contains(err.Error(), "no space left on device"):
		return &Error{agentapi.ReasonNoDisk, "the host's disk is full", err}
	case strings.Contains(err.Error(), "error verifying"),
		strings.Contains(err.Error(), "does not match requested digest"):
		return &Error{agentapi.ReasonImageRefused, "the registry sent something else than the digest it was asked for", err}
	case strings.Contains(err.Error(), "no child with platform"):
		return &Error{agentapi.ReasonImageWrongArch, "it is not made for linux/" + runtime.GOARCH + ", which this host is",
			err}
	}
	var from *fromRegistry
	if errors.As(err, &from) {
		if why := away(err); why != "" {
			return &Away{from.registry, why, err}
		}
	}
	return err
}

// fromRegistry marks errors of the registry's side of a pull, as distinct from the daemon's.
type fromRegistry struct {
	registry string
	error
}

func (f *fromRegistry) Unwrap() error { return f.error }

func innermost(err error) string {
	for _, e := range []error{errNotPublic, errPlain} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}
