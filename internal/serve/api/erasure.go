package api

import (
	"context"
	"net/http"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/erasure"
)

// exportMe sends what is kept of the caller, as a file.
func (a *API) exportMe(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	data, err := erasure.Export(r.Context(), a.db.Q, p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="my-data.json"`)
	_, err = w.Write(data)
	return err
}

func (a *API) deletionStanding(ctx context.Context, p account.Principal,
	_ *struct{}) (erasure.DeletionStanding, error) {
	return erasure.StandingOf(ctx, a.db.Q, p.User, false)
}

type deletionInput struct {
	Body struct {
		Password string `json:"password" doc:"yours" writeOnly:"true"`
		Confirm  string `json:"confirm" doc:"your e-mail address"`
		GiveUp   bool   `json:"give_up_balance,omitempty" doc:"give up the money that is left"`
	}
}

func (a *API) deleteMe(ctx context.Context, p account.Principal, in *deletionInput) (nothing, error) {
	return nothing{}, erasure.Delete(ctx, a.db, a.accounts, p, erasure.Request{
		Password: in.Body.Password,
		Confirm:  in.Body.Confirm,
		GiveUp:   in.Body.GiveUp,
	})
}
