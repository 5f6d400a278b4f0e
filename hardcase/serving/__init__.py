# SPDX-License-Identifier: Apache-2.0
"""A gate behind HTTP: one server that speaks plain JSON, KServe v2 and the chat of OpenAI, on both of its sides."""
