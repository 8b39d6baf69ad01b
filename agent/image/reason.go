package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/musterhq/muster/internal/agentapi"
)

// Error is why an image will not be pulled however often it is tried. Any other error of a pull may pass.
type Error struct {
	Reason string // agentapi.ReasonImage… or ReasonNoDisk
	Detail string // for the renter; no secret, no address of the host's
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

// classify turns what a registry, the guard or the daemon said into an Error where it is final.
func classify(err error) error {
	var known *Error
	var answer *transport.Error
	var dns *net.DNSError
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.Contains(err.Error(), "invalid realm in www-authenticate"): // the client library's own look at it
		return &Error{agentapi.ReasonImageRefused, errNotPublic.Error(), err}
	case errors.Is(err, errNotPublic), errors.Is(err, errPlain):
		return &Error{agentapi.ReasonImageRefused, innermost(err), err}
	case errors.As(err, &answer):
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return &Error{agentapi.ReasonImageUnauthorized, "the registry does not let us: the image does not exist there, or it is private and needs other credentials", err}
		case http.StatusNotFound:
			return &Error{agentapi.ReasonImageNotFound, "the registry has no such image", err}
		}
	case errors.As(err, &dns) && dns.IsNotFound:
		return &Error{agentapi.ReasonImageNotFound, "there is no registry of that name", err}
	case strings.Contains(err.Error(), "no space left on device"):
		return &Error{agentapi.ReasonNoDisk, "the host's disk is full", err}
	case strings.Contains(err.Error(), "error verifying"), strings.Contains(err.Error(), "does not match requested digest"):
		return &Error{agentapi.ReasonImageRefused, "the registry sent something else than the digest it was asked for", err}
	case strings.Contains(err.Error(), "no child with platform"):
		return &Error{agentapi.ReasonImageRefused, "the image is not made for this host's processor", err}
	}
	return err
}

func innermost(err error) string {
	for _, e := range []error{errNotPublic, errPlain} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}
