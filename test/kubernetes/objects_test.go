package kubernetes

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crd "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"vigil/test/proc"
)

// TestAPIServer uses a real API server as clients do.
func TestAPIServer(t *testing.T) {
	store := proc.Start(t, proc.Config{})
	s := startAPIServer(t, []string{"http://" + store.Addr()},
		"--etcd-compaction-interval=5s", "--event-ttl=4s", "--lease-reuse-duration-seconds=1")
	version, err := s.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-apiserver %s is ready on %s", version.GitVersion, proc.Subject())

	t.Run("change", func(t *testing.T) { testChange(t, s) })
	t.Run("watch", func(t *testing.T) { testWatch(t, s) })
	t.Run("consistent reads", func(t *testing.T) { testConsistentReads(t, s) })
	t.Run("custom resources", func(t *testing.T) { testCustomResources(t, s) })
	t.Run("leases", func(t *testing.T) { testLeases(t, s) })
	t.Run("events expire", func(t *testing.T) { testEventsExpire(t, s) })
	t.Run("pages and compaction", func(t *testing.T) { testPages(t, s) })
	t.Run("two API servers", func(t *testing.T) { testTwo(t, s, "http://"+store.Addr()) })
	t.Run("a new API server", func(t *testing.T) { testNew(t, s) })
}

func configMap(name string, data ...string) *core.ConfigMap {
	c := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: name}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

// newNamespace creates a namespace for one test.
func newNamespace(t *testing.T, s *apiServer) string {
	t.Helper()
	ns, err := s.CoreV1().Namespaces().Create(within(t),
		&core.Namespace{ObjectMeta: meta.ObjectMeta{GenerateName: "test-"}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// testChange creates, updates, patches and deletes, and expects the conflicts there should be.
func testChange(t *testing.T, s *apiServer) {
	ctx, maps := within(t), s.CoreV1().ConfigMaps(newNamespace(t, s))
	first, err := maps.Create(ctx, configMap("a", "k", "1"), meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(ctx, configMap("a"),
		meta.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("creating it again: %v, want AlreadyExists", err)
	}
	next := first.DeepCopy()
	next.Data["k"] = "2"
	if _, err := maps.Update(ctx, next, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Update(ctx, first, meta.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("an update of an old version: %v, want Conflict", err)
	}
	for _, patch := range []struct {
		kind types.PatchType
		body string
		opts meta.PatchOptions
	}{
		{types.MergePatchType, `{"data":{"merge":"x"}}`, meta.PatchOptions{}},
		{types.StrategicMergePatchType, `{"metadata":{"labels":{"patched":"yes"}}}`,
			meta.PatchOptions{}},
		{types.JSONPatchType, `[{"op":"remove","path":"/data/k"}]`, meta.PatchOptions{}},
		{types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","data":{"applied":"y"}}`,
			meta.PatchOptions{FieldManager: "tests"}},
	} {
		if _, err := maps.Patch(ctx, "a", patch.kind, []byte(patch.body), patch.opts); err != nil {
			t.Fatalf("%s: %v", patch.kind, err)
		}
	}
	got, err := maps.Get(ctx, "a", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Data, got.Labels) != "map[applied:y merge:x] map[patched:yes]" {
		t.Fatalf("after the patches: %v %v", got.Data, got.Labels)
	}
	stale := meta.DeleteOptions{Preconditions: &meta.Preconditions{ResourceVersion: &first.ResourceVersion}}
	if err := maps.Delete(ctx, "a", stale); !apierrors.IsConflict(err) {
		t.Fatalf("deleting an old version: %v, want Conflict", err)
	}
	if err := maps.Delete(ctx, "a", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "a", meta.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("after the deletion: %v, want NotFound", err)
	}
	t.Logf("created at resource version %s, updated, patched in 4 ways to %s, deleted; stale writes were refused", first.ResourceVersion, got.ResourceVersion)
}

// events reads n events of a watch, leaving bookmarks out, as TYPE name.
func events(t *testing.T, w watch.Interface, n int) []string {
	t.Helper()
	var got []string
	timeout := time.After(patience)
	for len(got) < n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %q", got)
			}
			if e.Type == watch.Error {
				t.Fatalf("after %q: %v", got, apierrors.FromObject(e.Object))
			}
			if o, ok := e.Object.(meta.Object); ok && e.Type != watch.Bookmark {
				got = append(got, string(e.Type)+" "+o.GetName())
			}
		case <-timeout:
			t.Fatalf("%s after %q, want %d events", patience, got, n)
		}
	}
	return got
}

// testWatch expects every change in order, from a version on and from a streamed list on.
func testWatch(t *testing.T, s *apiServer) {
	ctx, maps := within(t), s.CoreV1().ConfigMaps(newNamespace(t, s))
	for _, name := range []string{"a", "b"} {
		if _, err := maps.Create(ctx, configMap(name), meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := maps.List(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from, err := maps.Watch(ctx, meta.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Stop()
	yes := true
	streamed, err := maps.Watch(ctx, meta.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: meta.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer streamed.Stop()
	initial := events(t, streamed, 2)

	if _, err := maps.Create(ctx, configMap("c"), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"v"}}`),
		meta.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "b", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := "[ADDED c MODIFIED a DELETED b]"
	for _, w := range []watch.Interface{from, streamed} {
		if got := fmt.Sprint(events(t, w, 3)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	t.Logf("a streamed list began with %q; both watches continued with %s", initial, want)
}

// testConsistentReads expects lists right after writes to have them, out of the cache of watches:
// the API server asks the store only for its revision and for progress.
func testConsistentReads(t *testing.T, s *apiServer) {
	ctx, maps := within(t), s.CoreV1().ConfigMaps(newNamespace(t, s))
	const rounds = 50
	label := `resource="configmaps"`
	lists := s.metric("etcd_requests_total", label, `operation="list`)
	hits := s.metric("apiserver_watch_cache_consistent_read_total", label, `success="true"`)
	var slowest time.Duration
	for i := range rounds {
		if _, err := maps.Create(ctx, configMap(fmt.Sprint("m", i)),
			meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		list, err := maps.List(ctx, meta.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		if len(list.Items) != i+1 {
			t.Fatalf("a list after %d creations has %d objects", i+1, len(list.Items))
		}
	}
	lists = s.metric("etcd_requests_total", label, `operation="list`) - lists
	hits = s.metric("apiserver_watch_cache_consistent_read_total", label, `success="true"`) - hits
	if hits < rounds {
		t.Errorf("%v of %d lists were answered by the cache", hits, rounds)
	}
	if lists != 0 {
		t.Errorf("%v lists went to the store", lists)
	}
	t.Logf("%d lists right after writes: %v from the cache, %v from the store, the slowest in %s",
		rounds, hits, lists, slowest.Round(time.Millisecond))
}

// testCustomResources defines a kind, uses it, and expects its objects to go with it.
func testCustomResources(t *testing.T, s *apiServer) {
	ctx, ns := within(t), newNamespace(t, s)
	defs, err := crd.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionResource{Group: "tests.example.com", Version: "v1",
		Resource: "widgets"}
	name := kind.Resource + "." + kind.Group
	preserve := true
	definition := &extensions.CustomResourceDefinition{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: extensions.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: extensions.NamespaceScoped,
			Names: extensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget",
				Kind: "Widget", ListKind: "WidgetList"},
			Versions: []extensions.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema:       &extensions.CustomResourceValidation{OpenAPIV3Schema: &extensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
				Subresources: &extensions.CustomResourceSubresources{Status: &extensions.CustomResourceSubresourceStatus{}},
			}},
		},
	}
	if _, err := defs.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition,
		meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := s.dynamic.Resource(kind).Namespace(ns)
	until(t, "the new kind is served", func() bool {
		_, err := widgets.List(ctx, meta.ListOptions{})
		return err == nil
	}, nil)
	list, err := widgets.List(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := widgets.Watch(ctx, meta.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const n = 20
	for i := range n {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": kind.Group + "/v1", "kind": "Widget",
			"metadata": map[string]any{"name": fmt.Sprint("w", i)},
			"spec":     map[string]any{"size": int64(i)},
		}}
		if o, err = widgets.Create(ctx, o, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		o.Object["status"] = map[string]any{"ready": true}
		if _, err := widgets.UpdateStatus(ctx, o, meta.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := events(t, w, 2*n); got[0] != "ADDED w0" ||
		got[2*n-1] != fmt.Sprint("MODIFIED w", n-1) {
		t.Errorf("events: %q", got)
	}
	if err := defs.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, name,
		meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the kind is gone", func() bool {
		_, err := defs.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name,
			meta.GetOptions{})
		return apierrors.IsNotFound(err)
	}, nil)
	t.Logf("%s (%s): %d objects with status, %d events; all gone with their definition", name,
		apiextensions.GroupName, n, 2*n)
}

// testLeases has many holders renew leases at once, as nodes and controllers do, and lets a few
// fight for one.
func testLeases(t *testing.T, s *apiServer) {
	ctx, leases := within(t), s.CoordinationV1().Leases(newNamespace(t, s))
	const nodes, renewals, fighters = 20, 10, 4
	began := time.Now()
	var all sync.WaitGroup
	renew := func(name, holder string, times int) {
		defer all.Done()
		for done := 0; done < times; {
			l, err := leases.Get(ctx, name, meta.GetOptions{})
			if apierrors.IsNotFound(err) {
				l, err = leases.Create(ctx,
					&coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name}},
					meta.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					continue
				}
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			count := int32(1)
			if l.Spec.LeaseTransitions != nil {
				count += *l.Spec.LeaseTransitions
			}
			now := meta.NowMicro()
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseTransitions = &holder, &now, &count
			switch _, err = leases.Update(ctx, l, meta.UpdateOptions{}); {
			case err == nil:
				done++
			case !apierrors.IsConflict(err):
				t.Errorf("%s: %v", name, err)
				return
			}
		}
	}
	for i := range nodes {
		all.Add(1)
		go renew(fmt.Sprint("node-", i), "kubelet", renewals)
	}
	for i := range fighters {
		all.Add(1)
		go renew("controller", fmt.Sprint("fighter-", i), renewals)
	}
	all.Wait()
	if t.Failed() {
		return
	}
	took := time.Since(began)
	list, err := leases.List(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list.Items {
		want := int32(renewals)
		if l.Name == "controller" {
			want *= fighters
		}
		if *l.Spec.LeaseTransitions != want {
			t.Errorf("%s was renewed %d times, want %d", l.Name, *l.Spec.LeaseTransitions, want)
		}
	}
	t.Logf("%d leases, %d renewals in %s, %d of them of one lease by %d holders; none lost",
		len(list.Items), nodes*renewals+fighters*renewals, took.Round(time.Millisecond),
		fighters*renewals, fighters)
}

// testEventsExpire expects objects with a time to live to go by themselves: the API server puts
// them on leases of the store.
func testEventsExpire(t *testing.T, s *apiServer) {
	ctx, ns := within(t), newNamespace(t, s)
	events := s.CoreV1().Events(ns)
	began := time.Now()
	const n = 30
	for i := range n {
		e := &core.Event{
			ObjectMeta:     meta.ObjectMeta{Name: fmt.Sprint("e", i)},
			InvolvedObject: core.ObjectReference{Namespace: ns, Name: "x", Kind: "Pod"},
			Reason:         "Tested", Message: strings.Repeat("m", 100),
		}
		if _, err := events.Create(ctx, e, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the events are gone", func() bool {
		list, err := events.List(ctx, meta.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items) == 0
	}, nil)
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("the last of the events was gone after %s, their time to live is 4s", took)
	}
	t.Logf("%d events with a time to live of 4s were gone after %s", n,
		time.Since(began).Round(100*time.Millisecond))
}

// testPages reads many objects page by page while others are written, and expects one state in all
// pages; then lets the API server compact the store, and expects what is too old to be refused.
func testPages(t *testing.T, s *apiServer) {
	ctx, maps := within(t), s.CoreV1().ConfigMaps(newNamespace(t, s))
	const objects, limit, workers = 5000, 500, 16
	began := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := w; i < objects; i += workers {
				if _, err := maps.Create(ctx,
					configMap(fmt.Sprintf("m%04d", i), "k", strings.Repeat("v", 200)),
					meta.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
	if t.Failed() {
		return
	}
	wrote := time.Since(began)

	began = time.Now()
	var names []string
	var version, next string
	pages := 0
	for more := true; more; pages++ {
		list, err := maps.List(ctx, meta.ListOptions{Limit: limit, Continue: next})
		if err != nil {
			t.Fatal(err)
		}
		if version == "" {
			version = list.ResourceVersion
		}
		if list.ResourceVersion != version {
			t.Errorf("page %d is of version %s, the first of %s", pages,
				list.ResourceVersion, version)
		}
		for _, m := range list.Items {
			names = append(names, m.Name)
		}
		if left := list.RemainingItemCount; left != nil && int(*left) != objects-len(names) {
			t.Errorf("after %d objects %d are said to remain", len(names), *left)
		}
		// What changes now is not in any of the pages.
		if _, err := maps.Create(ctx, configMap(fmt.Sprint("z", pages)),
			meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		next = list.Continue
		more = next != ""
	}
	if len(names) != objects || names[0] != "m0000" ||
		names[objects-1] != fmt.Sprintf("m%04d", objects-1) {
		t.Errorf("%d objects in the pages, from %s to %s", len(names), names[0],
			names[len(names)-1])
	}
	t.Logf("%d objects created in %s, read in %d pages of one version in %s", objects,
		wrote.Round(time.Millisecond), pages, time.Since(began).Round(time.Millisecond))

	first, err := maps.List(ctx, meta.ListOptions{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	until(t, "the old version is compacted", func() bool {
		_, err := maps.List(ctx,
			meta.ListOptions{ResourceVersion: version,
				ResourceVersionMatch: meta.ResourceVersionMatchExact})
		return apierrors.IsResourceExpired(err)
	}, nil)
	var continued error
	until(t, "the continue token is too old", func() bool {
		_, continued = maps.List(ctx, meta.ListOptions{Limit: limit, Continue: first.Continue})
		return continued != nil
	}, nil)
	if !apierrors.IsResourceExpired(continued) {
		t.Fatalf("an old continue token: %v, want Expired", continued)
	}
	// The refusal brings a token that continues at the newest version.
	status, ok := continued.(apierrors.APIStatus)
	if !ok || status.Status().Continue == "" {
		t.Fatalf("the refusal has no token to go on with: %#v", continued)
	}
	rest, err := maps.List(ctx, meta.ListOptions{Limit: limit, Continue: status.Status().Continue})
	if err != nil || len(rest.Items) != limit || rest.Items[0].Name != "m0500" {
		t.Fatalf("going on at the newest version: %v", err)
	}
	t.Logf("compacted after %s: lists and pages of old versions are refused, and go on at the newest", time.Since(began).Round(100*time.Millisecond))
}

// testTwo expects what is written at one API server to be seen at another of the same store, and
// conflicts between them to be found.
func testTwo(t *testing.T, s *apiServer, store string) {
	ctx, ns := within(t), newNamespace(t, s)
	other := startAPIServer(t, []string{store})
	here, there := s.CoreV1().ConfigMaps(ns), other.CoreV1().ConfigMaps(ns)
	first, err := here.Create(ctx, configMap("a", "from", "here"), meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := there.List(ctx, meta.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("the other server lists %v, %v", list, err)
	}
	w, err := there.Watch(ctx, meta.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := first.DeepCopy()
	next.Data["from"] = "there"
	if _, err := there.Update(ctx, next, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Update(ctx, first, meta.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("an update of what the other server has changed: %v, want Conflict", err)
	}
	if err := here.Delete(ctx, "a", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got := events(t, w, 2)
	t.Logf("the other server saw %q, and a stale write was refused", got)
}

// testNew kills the API server and expects the next one to find everything, and to refuse watches
// from before the compaction.
func testNew(t *testing.T, s *apiServer) {
	ctx, maps := within(t), s.CoreV1().ConfigMaps(meta.NamespaceAll)
	before, err := maps.List(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.process.Kill()
	began := time.Now()
	s.launch()
	took := time.Since(began)
	after, err := maps.List(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Items) < len(before.Items) {
		t.Errorf("%d objects before, %d after", len(before.Items), len(after.Items))
	}
	w, err := maps.Watch(ctx, meta.ListOptions{ResourceVersion: "1"})
	if err == nil {
		e := <-w.ResultChan()
		w.Stop()
		err = apierrors.FromObject(e.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from version 1: %v, want Gone", err)
	}
	t.Logf("killed and ready again after %s with %d objects; a watch from version 1: %v",
		took.Round(time.Millisecond), len(after.Items), err)
}
