package hostlink

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
)

const (
	maxEnrollBody = 256 << 10
	// enrollsPerMinute limits enrolment requests per address. It allows a rack behind one address to enrol within a few
	// minutes; tokens cannot be guessed in any case.
	enrollsPerMinute = 60
)

// EnrollHandler serves agentapi.EnrollPath; requests fail until Start. It limits requests by the address in RemoteAddr.
func (l *Link) EnrollHandler() http.Handler {
	return limited("Too many enrolments from your address: try again in a minute.",
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reply, err := l.enroll(w, r)
			if err != nil {
				if fault.From(err) == nil {
					l.log.Error("enrolment failed", "err", err)
				} else {
					l.log.Info("enrolment refused", "address", r.RemoteAddr, "err", err)
				}
				problem(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(reply) // the agent repeats the request
		}))
}

// EndpointsHandler serves agentapi.EndpointsPath. It returns the endpoints that enrolled hosts use, without
// authentication.
func (l *Link) EndpointsHandler() http.Handler {
	return limited("Too many questions from your address: try again in a minute.",
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				w.Header().Set("Allow", http.MethodGet)
				problem(w, fault.New(fault.Invalid, "Where hosts connect is asked with GET."))
				return
			}
			urls, ca, err := l.AgentURLs()
			if err != nil {
				l.log.Error("where hosts connect is not known", "err", err)
				problem(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			// the agent repeats the request
			_ = json.NewEncoder(w).Encode(agentapi.Endpoints{NATS: urls, NATSCA: ca, Relays: l.cfg.Relays})
		}))
}

// limited limits the number of requests per address.
func limited(refusal string, next http.Handler) http.Handler {
	return httprate.LimitBy(enrollsPerMinute, time.Minute,
		func(r *http.Request) (string, error) { return addressOf(r), nil },
		httprate.WithLimitHandler(func(w http.ResponseWriter, _ *http.Request) {
			problem(w, fault.New(fault.RateLimited, "%s", refusal))
		}))(next)
}

func (l *Link) enroll(w http.ResponseWriter, r *http.Request) (*agentapi.EnrollReply, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, fault.New(fault.Invalid, "Enrolment is a POST.")
	}
	var req agentapi.EnrollRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEnrollBody)).Decode(&req); err != nil {
		if big := new(http.MaxBytesError); errors.As(err, &big) {
			return nil, fault.New(fault.TooLarge, "An enrolment has at most %d bytes.", maxEnrollBody)
		}
		return nil, fault.New(fault.Invalid, "The enrolment request is not valid JSON.")
	}
	urls, ca, err := l.AgentURLs()
	if err != nil {
		return nil, err
	}
	h, err := l.market.EnrollHost(r.Context(), host.EnrollPolicy{
		Origins:        l.cfg.Origins,
		AllowSimulated: l.cfg.AllowSimulated,
		Address:        addressOf(r),
	}, req)
	if err != nil {
		return nil, err
	}
	l.log.Info("host enrolled", "host", h.ID, "name", h.Name, "org", h.Org)
	l.bus.Changed(bus.TopicOrg(h.Org))
	return &agentapi.EnrollReply{
		Host: h.ID.String(), Name: h.Name, NATS: urls, NATSCA: ca, StreamDomain: l.cfg.StreamDomain, StreamCA: l.cfg.StreamCA,
	}, nil
}

func addressOf(r *http.Request) string {
	if h, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return h
	}
	return r.RemoteAddr
}

// problem writes an error in the format of the REST API. It discloses only the messages of faults.
func problem(w http.ResponseWriter, err error) {
	f := fault.From(err)
	if f == nil {
		f = fault.New(fault.Internal, "Something went wrong on our side. Please try again.")
	}
	body := map[string]any{}
	for k, v := range f.Extra {
		body[k] = v
	}
	body["title"], body["status"], body["detail"], body["code"] = f.Kind.Title(), f.Kind.HTTPStatus(), f.Message, f.Kind
	if len(f.Fields) > 0 {
		body["errors"] = f.Fields
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.Kind.HTTPStatus())
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}
