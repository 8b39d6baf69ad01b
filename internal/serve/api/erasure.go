package api

import (
	"context"
	"net/http"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/erasure"
)

// exportMe sends what is kept of the caller, as a file.
func (a *API) exportMe(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	data, err := a.erasure.Export(r.Context(), p)
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
	return a.erasure.Standing(ctx, p)
}

type deletionInput struct {
	Body struct {
		Password string `json:"password" doc:"yours" writeOnly:"true"`
		Confirm  string `json:"confirm" doc:"your e-mail address"`
		GiveUp   bool   `json:"give_up_balance,omitempty" doc:"give up the money that is left"`
	}
}

func (a *API) deleteMe(ctx context.Context, p account.Principal, in *deletionInput) (nothing, error) {
	return nothing{}, a.erasure.Delete(ctx, p, erasure.Request{
		Password: in.Body.Password,
		Confirm:  in.Body.Confirm,
		GiveUp:   in.Body.GiveUp,
	})
}
