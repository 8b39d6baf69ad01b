package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/notify"
)

// maxDeadLetters bounds the list of rows that background jobs cannot process.
const maxDeadLetters = 500

type deadLettersView struct {
	Items []notify.FailedRow `json:"items"`
}

func (a *API) deadLetters(ctx context.Context, _ account.Principal, _ *struct{}) (deadLettersView, error) {
	rows, err := a.notices.DeadLetters(ctx, maxDeadLetters)
	return deadLettersView{rows}, err
}
