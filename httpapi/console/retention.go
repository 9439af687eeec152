package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/query"
)

// retentionShown has the settings of how long leads are kept, stored or as posted.
type retentionShown struct {
	Days   string // empty or 0: without end
	Stages []stageKept
	Wrong  field.Errors
	Due    *query.Retention // nil: leads are kept without end, or the user may not see how many there are
}

// stageKept is a stage whose leads may be kept without end.
type stageKept struct {
	Name string
	Kept bool
}

func (v *visit) retention() (shown retentionShown, err error) {
	stored, err := v.Directory.ConfirmAccount(v.ctx, v.identity.Account)
	if err != nil {
		return shown, err
	}
	state := stored.State
	shown.Days = strconv.Itoa(state.RetentionDays)
	for _, stage := range stagesOf(state) {
		shown.Stages = append(shown.Stages, stageKept{stage, slices.Contains(state.KeepStages, stage)})
	}
	if state.RetentionDays > 0 && v.identity.May("leads:read") {
		due, err := v.Query.Retention(v.ctx, v.identity.Account)
		if err != nil {
			return shown, err
		}
		shown.Due = &due
	}
	return shown, nil
}

// stagesOf returns the stages of an account, and removed ones whose leads are kept.
func stagesOf(state account.State) []string {
	stages := slices.Clone(state.Stages)
	for _, stage := range state.KeepStages {
		if !slices.Contains(stages, stage) {
			stages = append(stages, stage)
		}
	}
	return stages
}

func (v *visit) changeRetention() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	posted := strings.TrimSpace(form.Get("retentionDays"))
	days, err := strconv.Atoi(posted)
	if err != nil && posted != "" {
		days = -1 // which is refused
	}
	want := account.Settings{RetentionDays: &days, KeepStages: append([]string{}, form["keepStages"]...)}
	_, position, err := v.Commands.ConfigureAccount(v.ctx, command.ConfigureAccount{
		Caller: v.caller, AccountID: v.identity.Account, Settings: want, Patch: true,
	})
	if faults, ok := wrong(err); ok {
		return v.settingsWith(faults, posted)
	}
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.AccountView)
	return screen{redirect: v.path("/settings#retention")}, nil
}

// settingsWith shows the settings with what is wrong with a posted retention.
func (v *visit) settingsWith(wrong field.Errors, days string) (screen, error) {
	page, err := v.settingsPage()
	if err != nil {
		return page, err
	}
	shown, _ := page.data.(identityPage)
	shown.Retention.Wrong, shown.Retention.Days = wrong, days
	page.data, page.status = shown, http.StatusBadRequest
	return page, nil
}
