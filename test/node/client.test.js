// The etcd client of Node against the server at ENDPOINT, which nothing else uses.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { noop } from 'cockatiel'
import {
	Etcd3,
	EtcdAuthenticationFailedError,
	EtcdLeaseInvalidError,
	EtcdLockFailedError,
	EtcdPermissionDeniedError,
	EtcdRoleExistsError,
	EtcdUserExistsError,
	GRPCOutOfRangeError,
	Range,
} from 'etcd3'

const hosts = process.env.ENDPOINT
// The client stops asking for a while when a server has refused something thrice, which is what these tests
// provoke.
const faultHandling = { host: () => noop, global: noop }
const client = new Etcd3({ hosts, faultHandling })

test.after(() => client.close())

// collect returns the first n events of a watcher as [type, key, value].
function collect(watcher, n) {
	const events = []
	return new Promise((resolve, reject) => {
		const add = (type, kv) => {
			events.push([type, kv.key.toString(), kv.value.toString()])
			if (events.length === n) resolve(events)
		}
		watcher.on('put', (kv) => add('put', kv))
		watcher.on('delete', (kv, before) => add('delete', before ?? kv))
		watcher.on('error', reject)
	})
}

// sleep is for conditions that only time brings about.
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// eventually waits until a condition holds.
async function eventually(what, holds) {
	for (const end = Date.now() + 20_000; !(await holds()); await sleep(20)) {
		if (Date.now() > end) throw new Error(`in vain: ${what}`)
	}
}

test('kv', async () => {
	const kv = client.namespace('kv/')
	assert.equal(await kv.get('none'), null)
	await kv.put('a').value('1')
	await kv.put('b').value('2')
	await kv.put('c').value(Buffer.from([0, 255]))
	assert.equal(await kv.get('a').string(), '1')
	assert.equal(await kv.get('b').number(), 2)
	assert.deepEqual(await kv.get('c').buffer(), Buffer.from([0, 255]))
	assert.equal(await kv.get('b').exists(), true)
	assert.deepEqual(await kv.getAll().keys(), ['a', 'b', 'c'])
	assert.equal(await kv.getAll().count(), 3)
	assert.deepEqual(await kv.getAll().sort('Key', 'Descend').limit(2).keys(), ['c', 'b'])
	assert.deepEqual(await kv.getAll().inRange(new Range('a', 'c')).strings(), { a: '1', b: '2' })

	const before = await kv.put('a').value('3').getPrevious()
	assert.equal(before.value.toString(), '1')
	const now = await kv.get('a').exec()
	assert.equal(now.kvs[0].version, '2')
	assert.equal(await kv.get('a').revision(before.mod_revision).string(), '1')
	assert.equal(await kv.get('a').serializable(true).string(), '3')

	const gone = await kv.delete().key('b').getPrevious()
	assert.equal(gone[0].value.toString(), '2')
	assert.equal((await kv.delete().all()).deleted, '2')
	assert.equal(await kv.getAll().count(), 0)

	await kv.put('big').value('x'.repeat(1 << 20))
	assert.equal((await kv.get('big').string()).length, 1 << 20)
	await assert.rejects(kv.put('big').value('x'.repeat(1_700_000)).exec(), /request is too large/)
})

test('history', async () => {
	const kv = client.namespace('history/')
	const first = await kv.put('k').value('old').exec()
	await kv.put('k').value('new')
	const current = (await kv.put('k').value('newer').exec()).header.revision
	await client.kv.compact({ revision: current })
	await assert.rejects(kv.get('k').revision(first.header.revision).exec(), (err) =>
		err instanceof GRPCOutOfRangeError && /required revision has been compacted/.test(err.message))
	await assert.rejects(kv.get('k').revision(Number(current) + 1000).exec(), /required revision is a future revision/)
})

test('txn', async () => {
	const kv = client.namespace('txn/')
	const create = () => kv.if('k', 'Create', '==', 0)
		.then(kv.put('k').value('mine'))
		.else(kv.get('k'))
		.commit()
	assert.equal((await create()).succeeded, true)
	const lost = await create()
	assert.equal(lost.succeeded, false)
	assert.equal(lost.responses[0].response_range.kvs[0].value.toString(), 'mine')

	const done = await kv.if('k', 'Value', '==', 'mine').and('k', 'Version', '<', 2).and('none', 'Mod', '==', 0)
		.then(kv.put('l').value('1'), kv.get('l'), kv.delete().key('k'))
		.commit()
	assert.equal(done.succeeded, true)
	assert.deepEqual(done.responses.map((r) => r.response), ['response_put', 'response_range', 'response_delete_range'])
	assert.equal(done.responses[1].response_range.kvs[0].value.toString(), '1')
	assert.deepEqual(await kv.getAll().strings(), { l: '1' })
	await assert.rejects(kv.if('l', 'Version', '>', 0).then(kv.put('x').value('1'), kv.put('x').value('2')).commit(),
		/duplicate key given in txn request/)
})

test('stm', async () => {
	const kv = client.namespace('stm/')
	await kv.put('from').value(100)
	await kv.put('to').value(0)
	// Serializable. With the default isolation this client finds conflicts where there are none.
	const isolation = 1
	await Promise.all(Array.from({ length: 10 }, () => kv.stm({ retries: 1000, isolation }).transact(async (tx) => {
		const from = await tx.get('from').number()
		const to = await tx.get('to').number()
		await tx.put('from').value(from - 7)
		await tx.put('to').value(to + 7)
	})))
	assert.deepEqual(await kv.getAll().numbers(), { from: 30, to: 70 })
})

test('watch', async () => {
	const kv = client.namespace('watch/')
	const all = await kv.watch().prefix('').withPreviousKV().create()
	const one = await kv.watch().key('b').create()
	const puts = await kv.watch().prefix('').only('put').create()
	const seen = [collect(all, 4), collect(one, 1), collect(puts, 3)]
	const began = (await kv.put('a').value('1').exec()).header.revision
	await kv.put('b').value('2')
	await kv.delete().key('a')
	await kv.put('c').value('3')
	const [everything, b, onlyPuts] = await Promise.all(seen)
	const want = [['put', 'a', '1'], ['put', 'b', '2'], ['delete', 'a', '1'], ['put', 'c', '3']]
	assert.deepEqual(everything, want)
	assert.deepEqual(b, [want[1]])
	assert.deepEqual(onlyPuts, [want[0], want[1], want[3]])

	const past = await kv.watch().prefix('').startRevision(began).withPreviousKV().create()
	assert.deepEqual(await collect(past, 4), want)
	await Promise.all([all, one, puts, past].map((w) => w.cancel()))
})

test('watch of many keys and watchers', async () => {
	const kv = client.namespace('many/')
	const watchers = await Promise.all(Array.from({ length: 50 }, () => kv.watch().prefix('').create()))
	const seen = watchers.map((w) => collect(w, 200))
	await Promise.all(Array.from({ length: 200 }, (_, i) => kv.put(`k${i}`).value(i)))
	const [first, ...others] = await Promise.all(seen)
	assert.equal(new Set(first.map((e) => e[1])).size, 200)
	for (const events of others) assert.deepEqual(events, first)
	await Promise.all(watchers.map((w) => w.cancel()))
})

test('a watch from a compacted revision', async () => {
	const kv = client.namespace('compacted/')
	const first = (await kv.put('k').value('1').exec()).header.revision
	await client.kv.compact({ revision: (await kv.put('k').value('2').exec()).header.revision })
	const watcher = kv.watch().key('k').startRevision(first).watcher()
	const [err] = await once(watcher, 'error')
	assert.match(err.message, /Watcher canceled/)
})

test('lease', async () => {
	const kv = client.namespace('lease/')
	const lease = client.lease(5)
	const id = await lease.grant()
	await kv.put('kept').value('x').lease(id)
	await lease.put('lease/also').value('y')
	const left = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true })
	assert.deepEqual(left.keys.map(String).sort(), ['lease/also', 'lease/kept'])
	assert.equal(left.grantedTTL, '5')
	const kept = once(lease, 'keepaliveSucceeded')
	assert.equal((await lease.keepaliveOnce()).TTL, '5')
	await kept
	await lease.revoke()
	assert.equal(await kv.getAll().count(), 0)
	await assert.rejects(kv.put('late').value('x').lease(id).exec(), EtcdLeaseInvalidError)

	// The keys of a lease are deleted when no client keeps it alive.
	const watcher = await kv.watch().prefix('').create()
	const gone = collect(watcher, 3)
	const short = client.lease(2, { autoKeepAlive: false })
	await kv.put('s1').value('').lease(short.grant())
	await kv.put('s2').value('').lease(short.grant())
	await kv.put('stays').value('')
	const began = Date.now()
	await eventually('the keys of the lease are gone', async () => (await kv.getAll().count()) === 1)
	assert.ok(Date.now() - began > 1500, `they were gone after ${Date.now() - began} ms`)
	await gone
	await watcher.cancel()
})

test('a lease that is kept alive outlives its time', async () => {
	const lease = client.lease(2)
	await lease.put('alive').value('x')
	await sleep(4000)
	assert.equal(await client.get('alive').string(), 'x')
	await lease.revoke()
})

test('lock', async () => {
	const holder = client.lock('locks/a').ttl(5)
	await holder.acquire()
	await assert.rejects(client.lock('locks/a').ttl(5).acquire(), EtcdLockFailedError)
	await holder.release()
	let inside = 0
	let turns = 0
	await Promise.all(Array.from({ length: 5 }, async () => {
		for (;;) {
			const lock = client.lock('locks/b').ttl(5)
			try {
				await lock.acquire()
			} catch (err) {
				assert.ok(err instanceof EtcdLockFailedError, err)
				await sleep(5)
				continue
			}
			assert.equal(++inside, 1)
			await sleep(5)
			inside--
			turns++
			await lock.release()
			return
		}
	}))
	assert.equal(turns, 5)
})

test('election', async () => {
	const election = client.election('tests', 5)
	const observer = await election.observe()
	const leaders = []
	observer.on('change', (leader) => leaders.push(leader))

	const first = election.campaign('first')
	await first.wait()
	assert.equal(await election.leader(), 'first')
	await eventually('the observer hears of the first', () => leaders.includes('first'))
	const second = election.campaign('second')
	const elected = once(second, 'elected')
	await first.proclaim('first, again')
	await eventually('the observer hears of it', () => leaders.includes('first, again'))
	assert.equal(await election.leader(), 'first, again')
	await first.resign()
	await elected
	await eventually('the observer hears of the second', () => leaders.at(-1) === 'second')
	await second.resign()
	await observer.cancel()
})

test('cluster and maintenance', async () => {
	const { members } = await client.cluster.memberList({})
	assert.equal(members.length, 1)
	const status = await client.maintenance.status({})
	assert.equal(status.leader, members[0].ID)
	assert.match(status.version, /^3\.7\./)
	assert.deepEqual((await client.maintenance.alarm({ action: 'Get' })).alarms, [])
	assert.ok((await client.maintenance.hash({})).hash !== 0)
	await client.maintenance.defragment({})
})

test('auth', async () => {
	const root = client.user('root')
	await root.create('secret')
	await root.addRole(await client.role('root').create())
	const reader = await client.role('reader').create()
	await reader.grant({ permission: 'Read', range: Range.prefix('public/') })
	assert.deepEqual(await reader.permissions(), [{ permission: 'Read', range: Range.prefix('public/') }])
	const guest = await client.user('guest').create('guest')
	await guest.addRole('reader')
	await assert.rejects(client.role('reader').create(), EtcdRoleExistsError)
	await assert.rejects(client.user('guest').create('x'), EtcdUserExistsError)
	assert.deepEqual((await guest.roles()).map((r) => r.name), ['reader'])

	await client.auth.authEnable()
	const asRoot = new Etcd3({ hosts, faultHandling, auth: { username: 'root', password: 'secret' } })
	const asGuest = new Etcd3({ hosts, faultHandling, auth: { username: 'guest', password: 'guest' } })
	const wrong = new Etcd3({ hosts, faultHandling, auth: { username: 'guest', password: 'wrong' } })
	try {
		await assert.rejects(client.get('public/k').exec(), /user name is empty/)
		await assert.rejects(wrong.get('public/k').exec(), EtcdAuthenticationFailedError)
		await asRoot.put('public/k').value('open')
		await asRoot.put('private/k').value('closed')
		assert.equal(await asGuest.get('public/k').string(), 'open')
		await assert.rejects(asGuest.get('private/k').exec(), EtcdPermissionDeniedError)
		await assert.rejects(asGuest.put('public/k').value('x').exec(), EtcdPermissionDeniedError)
		await assert.rejects(asGuest.if('public/k', 'Version', '>', 0).then(asGuest.get('private/k')).commit(), EtcdPermissionDeniedError)

		const watcher = await asGuest.watch().prefix('public/').create()
		const seen = collect(watcher, 1)
		await asRoot.put('public/k').value('changed')
		assert.deepEqual(await seen, [['put', 'public/k', 'changed']])
		await watcher.cancel()

		await asRoot.role('reader').revoke({ permission: 'Read', range: Range.prefix('public/') })
		await assert.rejects(asGuest.get('public/k').exec(), EtcdPermissionDeniedError)
	} finally {
		await asRoot.auth.authDisable()
		for (const c of [asRoot, asGuest, wrong]) c.close()
	}
	assert.equal(await client.get('private/k').string(), 'closed')
})
