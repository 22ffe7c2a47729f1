// The interoperability cases of gRPC with @grpc/grpc-js, against a server with the service of these cases at ADDR. TYPES is a file with
// the descriptors of the service, CA one with the certificate of the server, if it speaks TLS, for NAME.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import grpc from '@grpc/grpc-js'
import { loadFileDescriptorSetFromBuffer } from '@grpc/proto-loader'

const { ADDR, CA, NAME, TYPES } = process.env
const types = loadFileDescriptorSetFromBuffer(readFileSync(TYPES), { defaults: true, longs: Number })
const api = grpc.loadPackageDefinition(types).grpc.testing
const credentials = CA ? grpc.credentials.createSsl(readFileSync(CA)) : grpc.credentials.createInsecure()
const channel = { 'grpc.ssl_target_name_override': NAME, 'grpc.default_authority': NAME }
const plain = new api.TestService(ADDR, credentials, channel)
const gzip = new api.TestService(ADDR, credentials, { ...channel, 'grpc.default_compression_algorithm': 2 })
const other = new api.UnimplementedService(ADDR, credentials, channel)

test.after(() => {
	for (const c of [plain, gzip, other]) c.close()
})

const { status } = grpc
const payload = (size) => ({ type: 'COMPRESSABLE', body: Buffer.alloc(size) })
const sizes = (list) => list.map((size) => ({ size, interval_us: 0 }))

// begun makes a call of any kind and collects what arrives. ended resolves after the status.
function begun(client, method, { request, metadata = new grpc.Metadata(), deadline } = {}) {
	const result = { answers: [], header: undefined, status: undefined }
	const options = deadline === undefined ? {} : { deadline }
	let stream
	const definition = client[method]
	const answered = (err, answer) => {
		if (answer) result.answers.push(answer)
	}
	if (definition.requestStream) {
		stream = definition.responseStream ? client[method](metadata, options) : client[method](metadata, options, answered)
	} else {
		stream = definition.responseStream ? client[method](request, metadata, options) : client[method](request, metadata, options, answered)
	}
	if (definition.responseStream) {
		stream.on('data', (answer) => result.answers.push(answer))
		stream.on('error', () => {}) // the status says the same
	}
	stream.on('metadata', (m) => (result.header = m))
	const ended = new Promise((resolve) => stream.on('status', (s) => {
		result.status = s
		resolve(result)
	}))
	return { stream, result, ended }
}

// done makes a call without messages of its own, which must succeed, and returns what has arrived.
async function done(client, method, o) {
	const result = await begun(client, method, o).ended
	assert.equal(result.status.code, status.OK, result.status.details)
	return result
}

// next waits for the next answer of a stream.
const next = (stream) => new Promise((resolve, reject) => {
	stream.once('data', resolve)
	stream.once('status', (s) => reject(new Error(`ended with ${s.code} ${s.details}`)))
})

const bodies = (result) => result.answers.map((a) => a.payload.body.length)

const requested = [27182, 8, 1828, 45904]
const answered = [31415, 9, 2653, 58979]

test('empty_unary', async () => {
	assert.deepEqual((await done(plain, 'EmptyCall', { request: {} })).answers, [{}])
})

async function largeUnary(client) {
	const request = { response_type: 'COMPRESSABLE', response_size: 314159, payload: payload(271828) }
	const [answer] = (await done(client, 'UnaryCall', { request })).answers
	assert.deepEqual(answer.payload.body, Buffer.alloc(314159))
}

async function clientStreaming(client) {
	const { stream, ended } = begun(client, 'StreamingInputCall')
	for (const size of requested) stream.write({ payload: payload(size) })
	stream.end()
	const result = await ended
	assert.equal(result.status.code, status.OK)
	assert.equal(result.answers[0].aggregated_payload_size, 74922)
}

async function serverStreaming(client) {
	const request = { response_type: 'COMPRESSABLE', response_parameters: sizes(answered), payload: payload(1) }
	assert.deepEqual(bodies(await done(client, 'StreamingOutputCall', { request })), answered)
}

async function pingPong(client) {
	const { stream, ended } = begun(client, 'FullDuplexCall')
	for (const [i, size] of requested.entries()) {
		const answer = next(stream)
		stream.write({ response_type: 'COMPRESSABLE', response_parameters: sizes([answered[i]]), payload: payload(size) })
		assert.equal((await answer).payload.body.length, answered[i])
	}
	stream.end()
	assert.equal((await ended).status.code, status.OK)
}

for (const [client, compressed] of [[plain, ''], [gzip, ', compressed']]) {
	test('large_unary' + compressed, () => largeUnary(client))
	test('client_streaming' + compressed, () => clientStreaming(client))
	test('server_streaming' + compressed, () => serverStreaming(client))
	test('ping_pong' + compressed, () => pingPong(client))
}

test('empty_stream', async () => {
	const { stream, ended } = begun(plain, 'FullDuplexCall')
	stream.end()
	const result = await ended
	assert.equal(result.status.code, status.OK)
	assert.deepEqual(result.answers, [])
})

test('cancel_after_begin', async () => {
	const { stream, ended } = begun(plain, 'StreamingInputCall')
	stream.cancel()
	assert.equal((await ended).status.code, status.CANCELLED)
})

test('cancel_after_first_response', async () => {
	const { stream, ended } = begun(plain, 'FullDuplexCall')
	const answer = next(stream)
	stream.write({ response_type: 'COMPRESSABLE', response_parameters: sizes([31415]), payload: payload(27182) })
	assert.equal((await answer).payload.body.length, 31415)
	stream.cancel()
	assert.equal((await ended).status.code, status.CANCELLED)
})

test('timeout_on_sleeping_server', async () => {
	const { stream, ended } = begun(plain, 'FullDuplexCall', { deadline: Date.now() + 1 })
	stream.write({ payload: payload(27182) })
	assert.equal((await ended).status.code, status.DEADLINE_EXCEEDED)
})

async function statusMessage(details) {
	const response_status = { code: 2, message: details }
	const unary = await begun(plain, 'UnaryCall', { request: { response_status } }).ended
	const { stream, ended } = begun(plain, 'FullDuplexCall')
	stream.write({ response_status })
	stream.end()
	for (const result of [unary, await ended]) {
		assert.equal(result.status.code, status.UNKNOWN)
		assert.equal(result.status.details, details)
	}
}

test('status_code_and_message', () => statusMessage('test status message'))

test('special_status_message', () =>
	statusMessage('\t\ntest with whitespace\r\nand Unicode BMP \u263A and non-BMP \u{1F608}\t\n'))

test('unimplemented_method', async () => {
	assert.equal((await begun(plain, 'UnimplementedCall', { request: {} }).ended).status.code, status.UNIMPLEMENTED)
})

test('unimplemented_service', async () => {
	assert.equal((await begun(other, 'UnimplementedCall', { request: {} }).ended).status.code, status.UNIMPLEMENTED)
})

test('custom_metadata', async () => {
	const text = 'x-grpc-test-echo-initial'
	const binary = 'x-grpc-test-echo-trailing-bin'
	const metadata = new grpc.Metadata()
	metadata.set(text, 'test_initial_metadata_value')
	metadata.set(binary, Buffer.from('ababab', 'hex'))
	const check = (result) => {
		assert.equal(result.status.code, status.OK)
		assert.deepEqual(result.header.get(text), ['test_initial_metadata_value'])
		assert.deepEqual(result.status.metadata.get(binary), [Buffer.from('ababab', 'hex')])
	}
	const request = { response_type: 'COMPRESSABLE', response_size: 1, payload: payload(1) }
	check(await begun(plain, 'UnaryCall', { request, metadata }).ended)
	const { stream, ended } = begun(plain, 'FullDuplexCall', { metadata })
	stream.write({ response_type: 'COMPRESSABLE', response_parameters: sizes([1]), payload: payload(1) })
	stream.end()
	check(await ended)
})
