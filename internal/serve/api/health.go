package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// healthz says that the process answers; nothing else, so that a lost database does not get every replica restarted.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": a.cfg.Version})
}

const readyWithin = 3 * time.Second

// readyz says whether this replica should get requests, and what is missing when it should not: PostgreSQL reachable,
// its schema compatible, hosts able to reach this replica.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	checks := map[string]string{}
	ready := true
	note := func(name string, err error) {
		checks[name] = "ok"
		if err != nil {
			checks[name] = err.Error()
			ready = false
		}
	}
	if err := a.database.Ping(ctx); err != nil {
		note("postgres", errUnreachable)
	} else {
		note("postgres", nil)
		note("schema", a.database.SchemaReady(ctx))
	}
	for name, check := range a.cfg.Ready {
		note(name, check(ctx))
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, map[string]any{"ready": ready, "checks": checks})
}

type textError string

func (e textError) Error() string { return string(e) }

// errUnreachable stands for pgx's error, which names the server's address and user.
const errUnreachable = textError("PostgreSQL cannot be reached")

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
