package main

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/warmroute/warmroute/tokenize"
)

// developerProbe has the role first, where a template may treat a system
// message in its own way, and later.
const developerProbe = `{"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hello."},{"role":"developer","content":"In French."},{"role":"user","content":"Why?"}],"add_generation_prompt":true}`

// learnDeveloperRole asks each instance of the endpoints what it makes of the
// role developer, for versions of vLLM differ. Where all do the same, and it is
// one of what is known, such chats have tokens. While one does not answer,
// nothing new is believed.
func (r *router) learnDeveloperRole(ctx context.Context, client *http.Client, endpoints []EndpointConfig) {
	found, silent := map[*openModel][]tokenize.DeveloperRole{}, map[*openModel]bool{}
	for _, e := range endpoints {
		open := r.models.open(e.EndpointName)
		if open == nil {
			continue
		}
		for _, v := range e.ProductionVariants {
			for _, i := range v.Instances {
				if d, ok := developerRole(ctx, client, strings.TrimSuffix(i.URL, "/"), open.model, e.Model); ok {
					found[open] = append(found[open], d)
				} else {
					silent[open] = true
				}
			}
		}
	}
	for open, list := range found {
		slices.Sort(list)
		d := tokenize.DeveloperUnknown
		if list[0] == list[len(list)-1] {
			d = list[0]
		}
		if silent[open] && d != open.model.DeveloperRole() {
			d = tokenize.DeveloperUnknown
		}
		if open.model.DeveloperRole() != d {
			open.model.SetDeveloperRole(d)
			r.logger.Info("what the workers make of the role developer", "model", open.options.Name, "role", d.String())
		}
	}
}

// developerRole is what one worker does; not ok without an answer.
func developerRole(ctx context.Context, client *http.Client, url string, model *tokenize.Model, served string) (d tokenize.DeveloperRole, ok bool) {
	theirs, err := workerTokens(ctx, client, url, served, []byte(developerProbe))
	if err != nil {
		return tokenize.DeveloperUnknown, false
	}
	for _, d := range []tokenize.DeveloperRole{tokenize.DeveloperAsIs, tokenize.DeveloperAsSystem} {
		if ours, err := model.DeveloperTokens(d, []byte(developerProbe)); err == nil && compareIDs(ours, theirs).Equal {
			return d, true
		}
	}
	return tokenize.DeveloperUnknown, true
}
