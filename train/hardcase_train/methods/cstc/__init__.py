# SPDX-License-Identifier: Apache-2.0
"""Cost-sensitive trees and cascades of classifiers, CSTC, CSCC and Cronus (Xu et al. 2014), by one objective."""
